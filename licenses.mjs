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

/** The packages as a CycloneDX bill of materials; hashes are those of the lock file. */
export function sbom(packages, version) {
  const locked = JSON.parse(readFileSync("package-lock.json", "utf8")).packages;
  const components = packages.map((p) => {
    const [algorithm, digest] = locked[`node_modules/${p.name}`].integrity.split("-");
    const purl = `pkg:npm/${p.name.replace("@", "%40")}@${p.versionInfo}`;
    return {
      type: "library",
      "bom-ref": purl,
      name: p.name,
      version: p.versionInfo,
      hashes: [
        {
          alg: algorithm.replace("sha", "SHA-"),
          content: Buffer.from(digest, "base64").toString("hex"),
        },
      ],
      licenses: [{ license: { id: p.licenseId } }],
      purl,
    };
  });
  const own = `pkg:pypi/hloscope@${version}`;
  const about = {
    type: "library",
    "bom-ref": own,
    name: "hloscope",
    version,
    licenses: [{ license: { id: "Apache-2.0" } }],
    purl: own,
  };
  const made = {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: about },
    components,
    dependencies: [
      { ref: own, dependsOn: components.map((c) => c.purl) },
      ...components.map((c) => ({
        ref: c.purl,
        dependsOn: components
          .filter((d) => d.name in (locked[`node_modules/${c.name}`].dependencies ?? {}))
          .map((d) => d.purl),
      })),
    ],
  };
  return `${JSON.stringify(made, null, 2)}\n`;
}

/** A comment with the licences that travels with the code: saved pages hold the whole bundle. */
export function banner(packages) {
  return packages.length ? `/*! This file holds code of others:\n\n${text(packages)}*/\n` : "";
}
