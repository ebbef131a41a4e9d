// Builds the prebuilt JupyterLab extension: src/ → lib/index.js (esbuild) → labextension/
// (the federated bundle that JupyterLab loads). What JupyterLab provides is never bundled.
// The chips to choose from in the settings are those of the hardware file.

import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
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

const chips = readFileSync("python/hloscope/hardware/chips.toml", "utf8");
const found = [...chips.matchAll(/^\[([^\]]+)\]\s*^label\s*=\s*"([^"]+)"/gm)];
if (!found.length) throw new Error("chips.toml has no [id] followed by its label");
const settings = "labextension/schemas/hloscope/explorer.json";
const schema = JSON.parse(readFileSync(settings, "utf8"));
schema.properties.hardware.oneOf = [
  { const: "", title: "from the capture" },
  ...found.map(([, id, label]) => ({ const: id, title: label })),
];
writeFileSync(settings, `${JSON.stringify(schema, null, 2)}\n`);
