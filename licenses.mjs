// Licences of the packages that end up in our bundles, according to esbuild's metafile.

import { readdirSync, readFileSync } from "node:fs";

/** {name, versionInfo, licenseId, extractedText} of each package in an esbuild metafile. */
export function bundled(metafile) {
  const folders = new Set();
  for (const path of Object.keys(metafile.inputs)) {
    const found = /^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (found) folders.add(path.slice(0, found.index + found[0].length));
  }
  return [...folders].sort().map((folder) => {
    const about = JSON.parse(readFileSync(`${folder}package.json`, "utf8"));
    const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
    if (!file) throw new Error(`${about.name} has no licence text: it cannot be bundled`);
    return {
      name: about.name,
      versionInfo: about.version,
      licenseId: about.license,
      extractedText: readFileSync(folder + file, "utf8").trim(),
    };
  });
}

/** All the licences as one text; "" when nothing was bundled. */
export function text(packages) {
  return packages
    .map((p) => `${p.name} (${p.licenseId})\n\n${p.extractedText}\n`)
    .join(`\n${"-".repeat(72)}\n\n`);
}

/** A comment with the licences that travels with the code: saved pages hold the whole bundle. */
export function banner(packages) {
  return packages.length ? `/*! This file holds code of others:\n\n${text(packages)}*/\n` : "";
}
