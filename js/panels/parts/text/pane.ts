/**
 * One of several linked texts: coloured lines, of which only those on screen are in the page.
 * What a line means and what it is linked with is up to the caller.
 *
 *     stripes   number   text
 *     ▌▌            12   %dot.7 = f32[8,64] dot(%x, %w)        lit: something linked is pointed at
 *     ▌             13   %tanh.8 = f32[8,64] tanh(%dot.7)      pinned: was clicked
 *
 * Keys: Up, Down, Page Up, Page Down, Home and End move the cursor, which counts as pointing at
 * the line; Enter and Space pick it, `c` copies it.
 */
import { copyText, h } from "../../../base/dom.ts";
import { count } from "../../../base/format.ts";
import { virtualList } from "../virtual.ts";
import type { TokenKind, Tokens } from "./tokens.ts";

/** Height of a line, px. */
export const LINE = 19;
/** A constant's line can have a million characters, which no page displays well. */
const LONGEST = 3000;

/** A text by its lines, which are made when they come on screen. */
export interface Lines {
  count: number;
  text(k: number): string;
  /** Text in the number column; by default the number of the line. */
  number?(k: number): string;
  /** Whether it is a heading, such as a file name; it stands out and cannot be picked. */
  heading?(k: number): boolean;
}

/** The current look of a line. */
export interface Look {
  /** Colour classes, each a stripe, at most four; the first one also tints the line. */
  colors?: readonly number[];
  /** Something linked with it is pointed at. */
  lit?: boolean;
  /** The same, but less closely linked: a caller, or something it calls. */
  near?: boolean;
  pinned?: boolean;
  change?: "added" | "removed" | "changed";
  /** It contains what is searched for. */
  found?: boolean;
}

export interface TextPaneParts {
  /** For screen readers. */
  label: string;
  tokens: Tokens;
  look(k: number): Look;
  /** The line pointed at, or -1. */
  point?(k: number): void;
  /** The line was clicked, or picked by the keyboard. */
  pick?(k: number): void;
}

export interface TextPane {
  element: HTMLElement;
  /** Shows another text, from its beginning. */
  set(lines: Lines): void;
  /** Updates the look of the lines on screen. */
  refresh(): void;
  /** Brings a line into view, in the middle if it was off screen, and a column of it. */
  show(k: number, column?: number): void;
  /** Brings a line to the top. */
  begin(k: number): void;
  /** Whether a line is on screen. */
  shows(k: number): boolean;
  /** The line of the keyboard cursor; -1 none. */
  cursor: number;
  lines: Lines;
}

const NONE: Lines = { count: 0, text: () => "" };
let panes = 0;

/** The hue of a colour class, in degrees: neighbouring classes are far apart. */
export const hueOf = (color: number): number => Math.round((color * 137.508 + 215) % 360);

export function textPane(parts: TextPaneParts, signal: AbortSignal): TextPane {
  const id = `text-pane-${++panes}`;
  let lines = NONE;
  let edition = 0;
  let pointed = -1;
  let digits = 1;

  const make = (k: number) => {
    const heading = lines.heading?.(k) ?? false;
    const whole = lines.text(k);
    const code = h("code", null, ...coloured(whole, heading ? null : parts.tokens));
    if (whole.length > LONGEST) {
      code.append(h("span", { class: "dim" }, ` … ${count(whole.length - LONGEST)} more`));
    }
    const number = heading ? "" : (lines.number?.(k) ?? String(k + 1));
    return h(
      "div",
      {
        class: heading ? "code-line heading" : "code-line",
        id: `${id}-${k}`,
        role: "option",
        "data-row": k,
        "aria-disabled": heading || undefined,
      },
      h(
        "span",
        { class: "gutter" },
        h("span", { class: "stripes", "aria-hidden": "true" }),
        h("span", { class: "number", style: { width: `${digits}ch` } }, number),
      ),
      code,
    );
  };
  const refresh = (line: HTMLElement, k: number) => {
    const look = parts.look(k);
    const colors = look.colors ?? [];
    line.classList.toggle("linked", colors.length > 0);
    line.classList.toggle("lit", look.lit ?? false);
    line.classList.toggle("near", look.near ?? false);
    line.classList.toggle("pinned", look.pinned ?? false);
    line.classList.toggle("found", look.found ?? false);
    line.classList.toggle("cursor", k === pane.cursor);
    for (const change of ["added", "removed", "changed"]) {
      line.classList.toggle(change, look.change === change);
    }
    line.setAttribute("aria-selected", String(look.pinned ?? false));
    const wanted = colors.slice(0, 4).map(hueOf);
    if (line.dataset.hues === wanted.join()) return;
    line.dataset.hues = wanted.join();
    if (wanted.length) line.style.setProperty("--hue", String(wanted[0]));
    const stripes = line.querySelector(".stripes") as HTMLElement;
    stripes.replaceChildren(...wanted.map((hue) => h("i", { style: { "--hue": String(hue) } })));
  };
  const list = virtualList(LINE, { key: (k) => edition * 0x100000000 + k, make, refresh }, signal);
  const { element } = list;
  element.classList.add("text", "code-pane");
  element.tabIndex = 0;
  element.setAttribute("role", "listbox");
  element.setAttribute("aria-label", parts.label);

  const rowOf = (target: EventTarget | null): number => {
    const line = (target as Element | null)?.closest?.<HTMLElement>(".code-line");
    return line && !line.classList.contains("heading") ? Number(line.dataset.row) : -1;
  };
  const point = (k: number) => {
    if (k === pointed) return;
    pointed = k;
    parts.point?.(k);
  };
  const listen = { signal };
  element.addEventListener("pointerover", (event) => point(rowOf(event.target)), listen);
  element.addEventListener("pointerleave", () => point(-1), listen);
  element.addEventListener(
    "click",
    (event) => {
      // A drag that selects text is not a click on the line.
      const k = rowOf(event.target);
      if (k < 0 || String(document.getSelection() ?? "")) return;
      pane.cursor = k;
      parts.pick?.(k);
      list.update(lines.count);
    },
    listen,
  );
  const move = (k: number, by: number) => {
    let to = Math.min(lines.count - 1, Math.max(0, k));
    while (lines.heading?.(to) && to + by >= 0 && to + by < lines.count) to += by;
    pane.cursor = to;
    element.setAttribute("aria-activedescendant", `${id}-${to}`);
    list.show(to);
    point(to);
  };
  element.addEventListener(
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !lines.count) return;
      const at = pane.cursor;
      const page = Math.max(1, Math.floor(element.clientHeight / LINE) - 1);
      const actions: Record<string, () => void> = {
        ArrowDown: () => move(at + 1, 1),
        ArrowUp: () => move(at - 1, -1),
        PageDown: () => move(at + page, 1),
        PageUp: () => move(at - page, -1),
        Home: () => move(0, 1),
        End: () => move(lines.count - 1, -1),
        Enter: () => at >= 0 && parts.pick?.(at),
        " ": () => at >= 0 && parts.pick?.(at),
        c: () => at >= 0 && void copyText(lines.text(at).trim()),
      };
      const action = actions[event.key];
      if (!action) return;
      event.preventDefault();
      event.stopPropagation();
      action();
    },
    listen,
  );
  element.addEventListener("blur", () => point(-1), listen);

  const pane: TextPane = {
    element,
    cursor: -1,
    get lines() {
      return lines;
    },
    set(next) {
      lines = next;
      edition++;
      pane.cursor = pointed = -1;
      digits = Math.max(2, (next.number?.(next.count - 1) ?? String(next.count)).length);
      element.scrollTop = element.scrollLeft = 0;
      list.update(next.count);
    },
    refresh: () => list.update(lines.count),
    show(k, column = 0) {
      list.show(k);
      const text = element.querySelector<HTMLElement>(`[data-row="${k}"] code`);
      if (!text) return;
      const letter = text.offsetWidth / Math.max(1, Math.min(lines.text(k).length, LONGEST));
      const at = column * letter;
      const room = element.clientWidth - text.offsetLeft - 20 * letter;
      if (at < element.scrollLeft || at > element.scrollLeft + room) {
        element.scrollLeft = at < room ? 0 : at - 8 * letter;
      }
    },
    begin: (k) => list.begin(k),
    shows(k) {
      const line = element.querySelector(`[data-row="${k}"]`)?.getBoundingClientRect();
      const box = element.getBoundingClientRect();
      return line !== undefined && line.top >= box.top - 1 && line.bottom <= box.bottom + 1;
    },
  };
  return pane;
}

function coloured(text: string, tokens: Tokens | null): (Node | string)[] {
  const shown = text.length > LONGEST ? text.slice(0, LONGEST) : text;
  if (!tokens) return [shown];
  return tokens(shown).map(([kind, part]: [TokenKind, string]) =>
    kind === "plain" ? part : h("span", { class: `t-${kind}` }, part),
  );
}
