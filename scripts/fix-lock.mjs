// Completes package-lock.json after `npm install`: a registry mirror may leave out the entries of
// optional packages for other platforms, and `npm ci` then refuses the lock file everywhere.
//
//     npm install --package-lock-only … && node scripts/fix-lock.mjs && npm ci
//
// Also removes the `resolved` addresses of the registry used: npm finds packages without them.
import { readFileSync, writeFileSync } from "node:fs";

const OS = "darwin win32 linux android freebsd openbsd netbsd sunos aix openharmony".split(" ");
const CPU = "x64 arm64 arm ia32 ppc64 riscv64 s390x loong64 mips64el wasm32".split(" ");

const file = process.argv[2] ?? "package-lock.json";
const lock = JSON.parse(readFileSync(file, "utf8"));
const { packages } = lock;

/** Whether `name`, required by the package at `from`, has an entry there or further up. */
function isLocked(from, name) {
  for (let at = from; ; ) {
    if (packages[`${at ? `${at}/` : ""}node_modules/${name}`]) return true;
    if (!at) return false;
    const cut = at.lastIndexOf("/node_modules/");
    at = cut < 0 ? "" : at.slice(0, cut);
  }
}

/** Entry of a package such as @esbuild/linux-x64, with what npm would read from its package.json. */
function platformEntry(name, version) {
  const words = name.replace(/^@[^/]+\//, "").split("-");
  const os = words.filter((w) => OS.includes(w));
  const entry = { version, cpu: words.filter((w) => CPU.includes(w)), dev: true, optional: true };
  if (words.includes("musl")) entry.libc = ["musl"];
  else if (words.includes("gnu") && os[0] === "linux") entry.libc = ["glibc"];
  if (os.length) entry.os = os;
  return entry;
}

for (const [key, about] of Object.entries({ ...packages })) {
  delete about.resolved;
  for (const [name, version] of Object.entries(about.optionalDependencies ?? {})) {
    if (isLocked(key, name)) continue;
    if (!/^\d/.test(version)) throw new Error(`${key} wants ${name} ${version}: pin it by hand`);
    packages[`node_modules/${name}`] = platformEntry(name, version);
    console.log("added", name, version);
  }
}
const sorted = Object.entries(packages).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
lock.packages = Object.fromEntries(sorted);
writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
