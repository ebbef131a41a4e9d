/** What is open and in view, as parameters of a link: `of=74.12.8&open=1k.2.9&view=120,80,1`. */
import { type Opened, readNumbers, written } from "../graph/project/opened.ts";
import type { Tree } from "../graph/project/tree.ts";
import type { Camera } from "./camera/camera.ts";

/** The centre of the pane, in world units, and the zoom. */
export interface Sight {
  x: number;
  y: number;
  scale: number;
}

export type Words = Record<string, string>;

/** Places hold for one module as grouped by one version: node numbers mean nothing elsewhere. */
const moduleOf = (tree: Tree): string =>
  [tree.instructions, tree.groups, tree.foldAt.length].join(".");

export function writePlace(tree: Tree, now: Opened, sight: Sight | null): Words {
  const out: Words = { of: moduleOf(tree), open: written(now.open) };
  if (now.loose.length) out.loose = written(now.loose);
  if (now.plumbing || now.moves) {
    out.show = [now.plumbing && "plumbing", now.moves && "moves"].filter(Boolean).join(",");
  }
  if (sight) {
    const { x, y, scale } = sight;
    out.view = [x.toFixed(0), y.toFixed(0), scale.toPrecision(3)].join(",");
  }
  return out;
}

/** Null for another module, or if the parameters cannot be read. */
export function readPlace(
  tree: Tree,
  words: URLSearchParams,
): { opened: Opened; sight: Sight | null } | null {
  if (words.get("of") !== moduleOf(tree)) return null;
  const open = readNumbers(words.get("open") ?? "");
  const loose = readNumbers(words.get("loose") ?? "");
  if (!open || !loose) return null;
  const show = (words.get("show") ?? "").split(",");
  const opened = {
    open,
    loose,
    plumbing: show.includes("plumbing"),
    moves: show.includes("moves"),
  };
  const [x, y, scale] = (words.get("view") ?? "").split(",").map(Number);
  const known = Number.isFinite(x) && Number.isFinite(y) && scale > 0;
  return { opened, sight: known ? { x, y, scale } : null };
}

export function sightOf(camera: Camera): Sight {
  const { x, y, w, h } = camera.view;
  return { x: x + w / 2, y: y + h / 2, scale: camera.scale };
}

export function look(camera: Camera, at: Sight): void {
  camera.scale = Math.min(6, Math.max(0.004, at.scale));
  camera.x = at.x - camera.width / camera.scale / 2;
  camera.y = at.y - camera.height / camera.scale / 2;
}
