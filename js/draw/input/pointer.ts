/** What clicking, dragging and hovering do in the picture. */
import * as format from "../../base/format.ts";
import { CHIP_HEIGHT, STACK_OFFSET } from "../../graph/metrics.ts";
import { ItemKind } from "../../graph/project/projection.ts";
import { type EdgeMark, markAt } from "../../scene/marks.ts";
import type { Store } from "../../state/store.ts";
import type { Target } from "../api.ts";
import type { Engine } from "../engine.ts";
import { markSize } from "../paint/marks.ts";
import type { Renderer } from "../renderer.ts";
import { listen } from "./input.ts";

interface Parts {
  renderer: Renderer;
  engine: Engine;
  store: Store;
  toggle(target: Target): void;
  /** Highlights the paths between two instructions; 0 when there are none. */
  path(a: number, b: number): number;
  reveal(instruction: number): void;
  /** Called when the user moves the picture. */
  byHand(): void;
}

/** Up to this scale the sign that opens and closes is too small to click. */
const SIGN_SCALE = 0.45;

const LISTED = 6;
const markTitle = ({ texts, kind, count, bytes, exposed }: EdgeMark): string =>
  [
    kind === "reshard"
      ? "sharding changes:"
      : `async: moved beside the computation${count > 1 ? `, ${format.count(count)} in all, ${format.bytes(bytes)}` : ""}${count > 1 && exposed > 0 ? `, up to ${format.quantity(exposed, "s")} exposed in one run of each` : ""}:`,
    ...texts.slice(0, LISTED),
    ...(texts.length > LISTED ? [`and ${texts.length - LISTED} more`] : []),
  ].join("\n");

export function handlePointer(parts: Parts, signal: AbortSignal): void {
  const { renderer, engine, store } = parts;
  const projection = () => renderer.scene.picture.projection;
  const itemAt = (x: number, y: number): number => {
    let item = renderer.scene.itemAt(renderer.camera.toWorldX(x), renderer.camera.toWorldY(y));
    // What does not exist at this pass cannot be hit.
    while (item > 0 && renderer.life && !renderer.life.items[item])
      item = projection().parent[item];
    return item > 0 ? item : -1;
  };
  /** The front card of a stack is below the top of its item. */
  const lift = (item: number): number =>
    projection().kind[item] === ItemKind.Stack ? 2 * STACK_OFFSET : 0;
  const onSign = (item: number, x: number, y: number): boolean => {
    const { camera, scene } = renderer;
    if (!scene.opens(item) || camera.scale <= SIGN_SCALE) return false;
    const r = scene.rect(item);
    const wx = camera.toWorldX(x) - (r.x + r.w - lift(item));
    const wy = camera.toWorldY(y) - r.y - lift(item);
    return wx > -24 && wy < 28;
  };
  const chipAt = (item: number, x: number, y: number): number => {
    const { camera, scene } = renderer;
    if (scene.isOpen(item)) return -1;
    const [wx, wy] = [camera.toWorldX(x), camera.toWorldY(y)];
    return scene.chipAt(item, wx, wy, CHIP_HEIGHT)?.value ?? -1;
  };
  const nothing = { kind: "none", index: -1 } as const;
  listen(
    renderer.canvas,
    {
      pan(dx, dy) {
        parts.byHand();
        renderer.camera.panBy(dx, dy);
        renderer.moved();
      },
      zoom(x, y, factor) {
        parts.byHand();
        renderer.camera.zoomAt(x, y, factor);
        renderer.moved();
      },
      hover(x, y) {
        const item = itemAt(x, y);
        const { camera } = renderer;
        const [wx, wy] = [camera.toWorldX(x), camera.toWorldY(y)];
        const mark = markAt(renderer.marks, wx, wy, markSize(camera.scale) * 0.6);
        renderer.canvas.title = mark ? markTitle(mark) : "";
        renderer.canvas.style.cursor = item > 0 && onSign(item, x, y) ? "pointer" : "default";
        const chip = item > 0 ? chipAt(item, x, y) : -1;
        if (chip >= 0) store.hover({ kind: "instruction", index: chip });
        else if (item > 0 && !renderer.scene.isOpen(item)) {
          store.hover(engine.selectionOf(projection(), item));
        } else store.hover(nothing);
      },
      leave() {
        store.hover(nothing);
      },
      click(x, y, event) {
        const item = itemAt(x, y);
        if (item < 0) {
          if (store.get("highlight")) store.highlight(null);
          else store.select(nothing);
          return;
        }
        const now = store.get("selection");
        const to = engine.selectionOf(projection(), item);
        if (event.shiftKey && now.kind === "instruction" && to.kind === "instruction") {
          if (parts.path(now.index, to.index) === 0) parts.path(to.index, now.index);
          return;
        }
        const chip = chipAt(item, x, y);
        if (event.ctrlKey || event.metaKey) {
          store.selectAlso(chip >= 0 ? { kind: "instruction", index: chip } : to);
          return;
        }
        if (chip >= 0) {
          store.selectInstruction(chip);
          if (projection().itemOfInstruction[chip] > 0) parts.reveal(chip);
        } else if (onSign(item, x, y)) parts.toggle(engine.targetOf(projection(), item));
        else store.select(to);
      },
      doubleClick(x, y) {
        const item = itemAt(x, y);
        if (item < 0) renderer.fit();
        else if (!onSign(item, x, y) && renderer.scene.opens(item)) {
          parts.toggle(engine.targetOf(projection(), item));
        }
      },
    },
    signal,
  );
}
