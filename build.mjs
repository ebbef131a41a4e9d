// Bundles the renderer: widget.js (ES module for anywidget) and snapshot.js (one IIFE for HTML pages).

import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build, context } from "esbuild";

const out = "python/hloscope/static";
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
  for (const t of targets) {
    await build(t);
    const bytes = readFileSync(t.outfile);
    const kB = (n) => `${(n / 1000).toFixed(1)} kB`;
    console.log(`${t.outfile}  ${kB(bytes.length)}, ${kB(gzipSync(bytes).length)} gzip'd`);
  }
}
