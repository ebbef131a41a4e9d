/** Global set-up: Python (`$PYTHON`, or else "python") writes the Views that `views.test.ts` loads. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { env } from "node:process";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  export interface ProvidedContext {
    views: string;
  }
}

export default function setup(project: TestProject): () => void {
  const folder = mkdtempSync(join(tmpdir(), "hloscope-views-"));
  const python = env.PYTHON ?? "python";
  execFileSync(python, [join(import.meta.dirname, "write_views.py"), folder], { stdio: "inherit" });
  project.provide("views", folder);
  return () => rmSync(folder, { recursive: true, force: true });
}
