/**
 * What every compiler pass did: the passes in a table, and over the graph the module as it was
 * after the chosen pass, laid out once for all passes, so that what stays does not move.
 */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Passes } from "../../state/passes/passes.ts";
import { Life } from "../../state/passes/passes.ts";
import { NOTHING } from "../../state/store.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { note } from "../parts/parts.ts";
import { history } from "../parts/pass-history.ts";
import { diffPane } from "./diff.ts";
import { figures, timeline } from "./timeline.ts";

export const passes: Panel = {
  id: "passes",
  title: "Passes",
  fills: true,
  width: 0.44,
  available: (_model, host) => host?.passes !== undefined,
  render(element, ctx) {
    const loader = ctx.passes;
    let shown: { update(): void } | null = null;
    let was = "";
    const draw = () => {
      const { state } = loader;
      if (state.is === "ready") {
        shown ??= show(element, ctx, state.passes);
        shown.update();
      } else if (state.is === "loading") {
        if (was !== "loading") fill(element, waiting(ctx));
        const bar = element.querySelector("progress");
        if (bar && state.of > 0) {
          bar.max = state.of;
          bar.value = state.done;
        } else bar?.removeAttribute("value");
        const words = element.querySelector(".pass-words");
        if (words) {
          words.textContent = state.of
            ? `${state.words}: ${state.done} of ${state.of} passes`
            : `${state.words}…`;
        }
      } else {
        const failed = state.is === "failed" ? state.message : "";
        const go = h(
          "button",
          { class: "action", type: "button", onclick: () => void loader.start() },
          failed ? "Try again" : "Show the passes",
        );
        const said =
          failed === "Cancelled." ? failed : failed && `The passes are missing: ${failed}`;
        fill(
          element,
          h("div", { class: "empty" }, said ? note(said) : null, note(loader.price), go),
        );
      }
      was = state.is;
    };
    loader.on(draw, ctx.signal);
    draw();
    if (loader.state.is === "idle" && !loader.price) void loader.start();
  },
};

function waiting(ctx: PanelContext): HTMLElement {
  return h(
    "div",
    { class: "empty", role: "status" },
    h("progress", { "aria-label": "Working out the passes" }),
    h("p", { class: "note pass-words" }, ""),
    h("button", { class: "action", type: "button", onclick: () => ctx.passes.cancel() }, "Cancel"),
  );
}

/** The row shown last, so that closing the panel does not lose the place. */
const places = new WeakMap<Passes, number>();

const LEGEND: [Life, string, string][] = [
  [Life.Kept, "kept", ""],
  [Life.Added, "added", "+"],
  [Life.Removed, "removed", "−"],
  [Life.Changed, "changed", "~"],
];

function show(element: HTMLElement, ctx: PanelContext, found: Passes): { update(): void } {
  const { store, signal } = ctx;
  const stage = ctx.stage(found.model, signal);
  let row = Math.min(places.get(found) ?? found.begin, found.rows.length - 1);
  let asText = false;

  // 1. The header of the picture: which pass it is, what it did, and how to go on.
  const title = h("strong", { class: "clip" });
  const where = h("span", { class: "dim clip where" });
  // Its line is kept for passes without a description too, as the picture below must not move.
  const about = h("p", { class: "note clip pass-about" });
  about.hidden = !found.rows.some((r) => r.about);
  const did = h("span", { class: "pass-did", role: "status" });
  const back = h(
    "button",
    { class: "tool", type: "button", title: "Previous pass (← or k)", onclick: () => step(-1) },
    "←",
  );
  const on = h(
    "button",
    { class: "tool", type: "button", title: "Next pass (→ or j)", onclick: () => step(1) },
    "→",
  );
  const graphButton = h(
    "button",
    { class: "tool", type: "button", onclick: () => mode(false) },
    "Graph",
  );
  const textButton = h(
    "button",
    { class: "tool", type: "button", title: "Lines that changed (x)", onclick: () => mode(true) },
    "Text",
  );
  const key = h("div", { class: "pass-key", role: "group", "aria-label": "Colours" });
  for (const [life, word, sign] of LEGEND) {
    key.append(
      h("span", { class: "key" }, h("i", { class: `life-${life}` }, sign), h("span", null, word)),
    );
  }
  const undrawn = h("span", { class: "dim clip pass-undrawn", role: "status" });
  key.append(undrawn);
  stage.element.prepend(
    h(
      "div",
      { class: "pass-bar" },
      back,
      on,
      h("div", { class: "pass-title" }, title, where),
      did,
      h("span", { class: "gap" }),
      graphButton,
      textButton,
    ),
    about,
  );
  stage.element.append(key);
  const diff = diffPane(
    found,
    (i) => stage.store.selectInstruction(i),
    () => selected(),
    signal,
  );
  diff.element.hidden = true;
  stage.element.append(diff.element);

  // 2. The panel: passes above, the chosen instruction below.
  const table = timeline(found, (k) => go(k), signal);
  const rest = h("p", { class: "note pass-rest", role: "status" });
  const stop = h(
    "button",
    { class: "mini", type: "button", onclick: () => ctx.passes.cancel() },
    "stop",
  );
  const life = h("div", {
    class: "pass-life",
    role: "region",
    tabindex: "0",
    "aria-label": "The chosen instruction",
  });
  fill(
    element,
    h("div", { class: "column" }, found.note ? note(found.note) : null, rest, table.element, life),
  );

  const selected = (): number => {
    const { kind, index } = stage.store.get("selection");
    return kind === "instruction" ? index : -1;
  };
  const mode = (text: boolean) => {
    asText = text;
    stage.graph.hidden = text;
    key.hidden = text;
    diff.element.hidden = !text;
    graphButton.setAttribute("aria-pressed", String(!text));
    textButton.setAttribute("aria-pressed", String(text));
    if (text) diff.show(row);
  };
  const go = (to: number) => {
    row = to;
    places.set(found, row);
    const now = found.rows[row];
    title.textContent = now.pass;
    where.textContent = `${now.pipeline ? `${now.pipeline} · ` : ""}${row + 1} of ${found.rows.length}`;
    about.textContent = now.about;
    about.title = now.about;
    const parts: [string, number][] = [
      ["+", now.added],
      ["−", now.removed],
      ["~", now.changed],
    ];
    const words = parts
      .filter(([, n]) => n > 0)
      .map(([sign, n]) => `${sign}${n.toLocaleString("en-US")}`);
    if (now.renamed) words.push(`${now.renamed.toLocaleString("en-US")} renamed (inferred)`);
    did.textContent =
      row === 0 ? "the beginning" : words.join("  ") || "only metadata, order or names";
    table.update(row);
    if (selected() < 0) tell();
    (back as HTMLButtonElement).disabled = table.next(row, -1) === row;
    (on as HTMLButtonElement).disabled = table.next(row, 1) === row;
    stage.pane.setLife({
      state: found.lives(row),
      operands: operands(row),
      before: operands(Math.max(0, row - 1)),
      onUndrawn: (n) => {
        undrawn.textContent = n
          ? `${format.plural(n, "more arrow", "more arrows")} not drawn: close some boxes`
          : "";
        undrawn.title = undrawn.textContent;
      },
    });
    if (asText) diff.show(row);
  };
  let known: { row: number; at: ReturnType<Passes["operandsAt"]> }[] = [];
  const operands = (at: number) => {
    const have = known.find((k) => k.row === at);
    if (have) return have.at;
    known = [{ row: at, at: found.operandsAt(at) }, ...known.slice(0, 2)];
    return known[0].at;
  };
  const step = (by: 1 | -1) => go(table.next(row, by));
  const far = (by: 1 | -1) => go(table.next(by < 0 ? -1 : found.rows.length, by));
  const tell = () => {
    const i = selected();
    if (i < 0) {
      fill(
        life,
        h("h2", { class: "title" }, found.title(row)),
        figures(found, row),
        note("Click a box or a line to see when it appeared, why, and what it was before."),
      );
      return;
    }
    fill(
      life,
      h("h2", { class: "title" }, `%${found.model.name(i)}`),
      ...history(found, i, {
        row: go,
        instruction: (other, at) => {
          go(at);
          stage.store.selectInstruction(other);
          stage.pane.reveal(other);
        },
      }),
    );
    life.scrollTop = 0;
    diff.reveal(i);
  };
  stage.store.on(
    "selection",
    () => {
      tell();
      const i = selected();
      // What still exists at the end is selected in the main picture as well.
      if (i >= 0 && found.final[i] >= 0) store.selectInstruction(found.final[i]);
      else if (i >= 0) store.select(NOTHING);
    },
    signal,
  );
  const follow = () => {
    const { kind, index } = store.get("selection");
    const i = kind === "instruction" ? found.fromFinal(index) : -1;
    if (i < 0 || i === selected()) return;
    stage.store.selectInstruction(i);
    stage.pane.reveal(i);
  };
  store.on("selection", follow, signal);

  // 3. Keys, which take precedence over the explorer's, as its picture is covered.
  const keys: Record<string, () => unknown> = {
    ArrowRight: () => step(1),
    j: () => step(1),
    ArrowLeft: () => step(-1),
    k: () => step(-1),
    Home: () => far(-1),
    End: () => far(1),
    ArrowUp: () => stage.pane.focusNext("operand"),
    ArrowDown: () => stage.pane.focusNext("user"),
    Enter: () => stage.pane.toggleSelected(),
    f: () => stage.pane.fit(),
    "+": () => stage.pane.zoom(1.4),
    "=": () => stage.pane.zoom(1.4),
    "-": () => stage.pane.zoom(1 / 1.4),
    x: () => mode(!asText),
  };
  const root = stage.element.closest(".root") as HTMLElement;
  root.addEventListener(
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      const at = (root.getRootNode() as ShadowRoot).activeElement;
      if (at?.matches("input, select, textarea")) return;
      const letter = event.key.length === 1;
      if (at?.closest(".popover, .sheet") || (!letter && at?.closest(".tabs, .grip"))) return;
      if (!letter && at?.closest(".code-pane") && /Up|Down|Enter|Home|End/.test(event.key)) return;
      if (event.key === "Enter" && at?.matches("button")) return;
      keys[event.key]();
      event.preventDefault();
      event.stopPropagation();
    },
    { signal, capture: true },
  );

  mode(false);
  tell();
  go(row);
  follow();
  // A tab that was clicked passes the focus on, so that arrows step; reached by keyboard, it keeps it.
  const at = (root.getRootNode() as ShadowRoot).activeElement;
  if (at?.matches(".tab") && !at.matches(":focus-visible")) table.focus();
  // Wait until the panel has its width.
  requestAnimationFrame(() => selected() < 0 && stage.pane.fit());
  return {
    update() {
      const { state } = ctx.passes;
      const words = state.is === "ready" ? state.rest : "";
      fill(rest, words, state.is === "ready" && state.more ? stop : null);
      rest.hidden = !words;
      table.renew();
      if (selected() < 0) tell();
    },
  };
}
