// Builds the prebuilt JupyterLab extension: src/ → lib/index.js (esbuild) → labextension/
// (the federated bundle that JupyterLab loads). What JupyterLab provides is never bundled.

import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { copyFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const require = createRequire(import.meta.url);

await build({
  entryPoints: ["src/index.ts"],
  outfile: "lib/index.js",
  bundle: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  charset: "utf8",
  external: ["@jupyterlab/*", "@lumino/*"],
});
execFileSync(
  process.execPath,
  [
    require.resolve("@jupyter/builder/lib/build-labextension.js"),
    "--core-package-file",
    require.resolve("@jupyterlab/core-meta/core.package.json"),
    ".",
  ],
  { stdio: "inherit" },
);
