// Builds the prebuilt JupyterLab extension: src/ → lib/index.js (esbuild) → labextension/
// (the federated bundle that JupyterLab loads). What JupyterLab provides is not bundled.
// The chips and colourings offered in the settings come from chips.toml and from the explorer.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { build } from "esbuild";
import { css } from "./bundle.mjs";
import { bundled } from "./licenses.mjs";

const require = createRequire(import.meta.url);

const made = await build({
  entryPoints: ["src/index.ts"],
  outfile: "lib/index.js",
  bundle: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  charset: "utf8",
  plugins: [css],
  external: ["@jupyterlab/*", "@lumino/*"],
  metafile: true,
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

// webpack sees only our own bundled file and so would list no packages
writeFileSync(
  "labextension/static/third-party-licenses.json",
  `${JSON.stringify({ packages: bundled(made.metafile) }, null, 2)}\n`,
);
const [, version] = /^__version__ = "([^"]+)"/m.exec(
  readFileSync("python/hloscope/__init__.py", "utf8"),
);
const about = JSON.parse(readFileSync("labextension/package.json", "utf8"));
writeFileSync("labextension/package.json", `${JSON.stringify({ ...about, version }, null, 2)}\n`);

const chips = readFileSync("python/hloscope/hardware/chips.toml", "utf8");
const found = [...chips.matchAll(/^\[([^\]]+)\]\s*^label\s*=\s*"([^"]+)"/gm)];
if (!found.length) throw new Error("chips.toml has no [id] followed by its label");
const explorer = await build({
  entryPoints: ["js/panels/colorings/colorings.ts"],
  bundle: true,
  format: "esm",
  plugins: [css],
  write: false,
});
const code = Buffer.from(explorer.outputFiles[0].contents).toString("base64");
const { COLORINGS } = await import(`data:text/javascript;base64,${code}`);
const settings = "labextension/schemas/hloscope/explorer.json";
const schema = JSON.parse(readFileSync(settings, "utf8"));
const choice = (id, label) => ({ const: id, title: label });
schema.properties.colorBy.oneOf = COLORINGS.map((c) => choice(c.id, c.label));
schema.properties.hardware.oneOf = [
  choice("", "from the capture"),
  ...found.map(([, id, label]) => choice(id, label)),
];
writeFileSync(settings, `${JSON.stringify(schema, null, 2)}\n`);
