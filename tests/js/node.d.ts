/** The few parts of Node that tests use. */
declare module "node:fs" {
  export function readFileSync(path: URL): Uint8Array;
  export function readdirSync(path: URL): string[];
}
declare module "node:zlib" {
  export function gunzipSync(bytes: Uint8Array): Uint8Array;
  export function gzipSync(bytes: Uint8Array): Uint8Array;
}
declare const process: { memoryUsage(): { arrayBuffers: number } };
