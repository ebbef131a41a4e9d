// Bundles the renderer: explorer.js, and plan.js for planning. Each is a classic script that defines
// a global `hloscope`; python/hloscope/show/static.py makes pages and widgets from them.

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build, context } from "esbuild";
import { css } from "./bundle.mjs";
import { banner, bundled, sbom, text } from "./licenses.mjs";

const out = "python/hloscope/static";
rmSync(out, { recursive: true, force: true }); // stale files must not get into the wheel
mkdirSync(out, { recursive: true });
const common = {
  bundle: true,
  format: "iife",
  globalName: "hloscope",
  minify: true,
  target: "es2022",
  legalComments: "none",
  charset: "utf8",
  plugins: [css],
};
const targets = [
  { ...common, entryPoints: ["js/hosts/renderer.ts"], outfile: `${out}/explorer.js` },
  { ...common, entryPoints: ["js/plan/renderer.ts"], outfile: `${out}/plan.js` },
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
  // Both go into the wheel; committed, so that source distributions have them too.
  const about = readFileSync("python/hloscope/__init__.py", "utf8");
  const [, version] = /^__version__ = "([^"]+)"/m.exec(about);
  writeFileSync("THIRD-PARTY-LICENSES.txt", text([...others.values()]));
  writeFileSync("sbom.cdx.json", sbom([...others.values()], version));
}
