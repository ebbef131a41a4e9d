/** The few parts of Node that tests use. */
declare module "node:fs" {
  export function readFileSync(path: URL | string): Uint8Array;
  export function readdirSync(path: URL | string): string[];
  export function mkdtempSync(prefix: string): string;
  export function rmSync(path: string, options: { recursive: boolean; force: boolean }): void;
}
declare module "node:zlib" {
  export function gunzipSync(bytes: Uint8Array): Uint8Array;
  export function gzipSync(bytes: Uint8Array): Uint8Array;
}
declare module "node:child_process" {
  export function execFileSync(file: string, args: string[], options: { stdio: "inherit" }): void;
}
declare module "node:os" {
  export function tmpdir(): string;
}
declare module "node:path" {
  export function join(...parts: string[]): string;
}
declare module "node:process" {
  export const env: Record<string, string | undefined>;
}
declare const process: {
  env: Record<string, string | undefined>;
  memoryUsage(): { arrayBuffers: number };
};
