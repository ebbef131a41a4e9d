/** Two explorers on one page whose programs were matched: which box of one is which of the other. */
import type { ViewModel } from "../base/model.ts";
import { costsOf } from "../state/cost/costs.ts";
import { groupPath, instructionsOf } from "../state/members.ts";
import type { Store } from "../state/store.ts";
import type { Selection } from "../view.ts";

interface Target {
  kind: "group" | "fold" | "instruction";
  index: number;
}

/** What is used of the graph pane. */
interface Pane {
  openAll(): void;
  closeAll(): void;
  openDefault(): void;
  fit(): void;
  zoom(factor: number): void;
  toggle(target: Target): void;
  canOpen(target: Target): boolean;
  isOpen(target: Target): boolean;
  onMove(callback: () => void): () => void;
  sight: { x: number; y: number; scale: number };
}

interface Running {
  model: ViewModel;
  store: Store;
  pane: Pane;
}

/** What a toolbar does to a picture, which is done to both. */
const COMMON = ["openAll", "closeAll", "openDefault", "fit", "zoom"] as const;

/**
 * Makes two pictures one: what is opened, moved, zoomed and chosen in either is in both. `pair`
 * finds the counterpart of a box of the side, 0 or 1.
 */
export function together(
  both: readonly [Running, Running],
  pair: (side: number, selection: Selection) => Selection | null,
): void {
  let following = false;
  const once = (act: () => void) => {
    if (following) return;
    following = true;
    act();
    following = false;
  };
  both.forEach(({ pane, store }, side) => {
    const other = both[1 - side];
    for (const name of COMMON) {
      const own = (pane[name] as (...values: number[]) => void).bind(pane);
      const theirs = (...values: number[]) =>
        (other.pane[name] as (...values: number[]) => void)(...values);
      Object.assign(pane, {
        [name]: (...values: number[]) => {
          own(...values);
          once(() => theirs(...values));
        },
      });
    }
    const toggle = pane.toggle.bind(pane);
    Object.assign(pane, {
      toggle: (target: Target) => {
        toggle(target);
        const there = pair(side, target) as Target | null;
        if (!there || !other.pane.canOpen(there)) return;
        if (other.pane.isOpen(there) !== pane.isOpen(target)) once(() => other.pane.toggle(there));
      },
    });
    pane.onMove(() =>
      // The picture moves after this call.
      requestAnimationFrame(() =>
        once(() => {
          other.pane.sight = pane.sight;
        }),
      ),
    );
    store.on("options", () => {
      const { colorBy, panel, theme } = store.get("options");
      const there = other.store.get("options");
      if (there.colorBy === colorBy && there.panel === panel && there.theme === theme) return;
      once(() => other.store.setOptions({ colorBy, panel, theme }));
    });
  });
}

/** The explorer in an element, once it has its View; null before. */
export function running(element: HTMLElement): Running | null {
  const root = element.shadowRoot?.querySelector(".root");
  return (root as unknown as { hloscope?: Running } | null)?.hloscope ?? null;
}

/** The changed or new operation with the most time, else the first one; -1 if there are none. */
export function mostChanged(model: ViewModel): number {
  const of = model.optional<Uint8Array>("diff.of");
  if (!of) return -1;
  const step = costsOf(model)?.step;
  const weight = (i: number) => (step && step[i] > 0 ? step[i] : 0);
  let best = -1;
  for (let i = 0; i < of.length; i++) {
    if (of[i] > 0 && (best < 0 || weight(i) > weight(best))) best = i;
  }
  return best;
}

/** The counterpart of a selection in the other program; null if there is none. */
export function partner(
  here: HTMLElement,
  there: HTMLElement,
  selection: Selection,
): Selection | null {
  const mine = running(here)?.model;
  const theirs = running(there)?.model;
  if (!mine || !theirs || selection.kind === "none") return null;
  const pair = mine.optional<Int32Array>("diff.pair");
  if (!pair) return null;
  const inside = (i: number) => i >= 0 && i < theirs.instruction.count;
  if (selection.kind === "instruction") {
    const index = pair[selection.index] ?? -1;
    return inside(index) ? { kind: "instruction", index } : null;
  }
  // The counterpart of a group is the group that contains most of its contents, innermost first.
  const votes = new Map<number, number>();
  for (const i of instructionsOf(mine, selection).slice(0, 2000)) {
    if (!inside(pair[i])) continue;
    for (const g of groupPath(theirs, { kind: "instruction", index: pair[i] })) {
      votes.set(g, (votes.get(g) ?? 0) + 1);
    }
  }
  let best = -1;
  let most = 0;
  for (const [g, n] of votes) {
    const nearer = n === most && theirs.group.size[g] < theirs.group.size[best];
    if (n > most || nearer) [best, most] = [g, n];
  }
  return best >= 0 ? { kind: "group", index: best } : null;
}
