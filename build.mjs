// Bundles the renderer: widget.js (ES module for anywidget) and snapshot.js (one IIFE for HTML pages).

import { mkdirSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build, context } from "esbuild";
import { banner, bundled, text } from "./licenses.mjs";

const out = "python/hloscope/static";
mkdirSync(out, { recursive: true }); // a clean clone has none
const common = {
  bundle: true,
  minify: true,
  target: "es2022",
  legalComments: "none",
  charset: "utf8",
};
const targets = [
  { ...common, entryPoints: ["js/widget.ts"], format: "esm", outfile: `${out}/widget.js` },
  { ...common, entryPoints: ["js/snapshot.ts"], format: "iife", outfile: `${out}/snapshot.js` },
  { ...common, entryPoints: ["js/plan.ts"], format: "iife", outfile: `${out}/plan.js` },
  {
    ...common,
    entryPoints: ["js/plan-widget.ts"],
    format: "esm",
    outfile: `${out}/plan-widget.js`,
  },
];
if (process.argv.includes("--watch")) {
  for (const t of targets) await (await context({ ...t, minify: false })).watch();
} else {
  const others = new Map();
  for (const t of targets) {
    const made = await build({ ...t, write: false, metafile: true });
    const packages = bundled(made.metafile);
    for (const p of packages) others.set(p.name, p);
    const bytes = Buffer.from(banner(packages) + made.outputFiles[0].text);
    writeFileSync(t.outfile, bytes);
    const kB = (n) => `${(n / 1000).toFixed(1)} kB`;
    console.log(`${t.outfile}  ${kB(bytes.length)}, ${kB(gzipSync(bytes).length)} gzip'd`);
  }
  // Goes into the wheel beside our own; committed, so that a source distribution has it too.
  writeFileSync("THIRD-PARTY-LICENSES.txt", text([...others.values()]));
}
