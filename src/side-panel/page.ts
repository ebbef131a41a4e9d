/** The contents of the side panel: rows, buttons, and instructions when there are no captures. */
import type { NotebookPanel } from "@jupyterlab/notebook";
import { clock, facts, type Shown } from "../notebook/captures.ts";

export interface Row {
  shown: Shown;
  notebook: NotebookPanel;
  name: string;
  /** Whether the kernel still has the capture, as far as is known. */
  isLive: boolean;
}

export interface State {
  path: string;
  hasKernel: boolean;
  status: string;
  rows: Row[];
  /** Number of rows that the user removed from the list. */
  hidden: number;
}

export interface RowActions {
  /** Shows the output in its notebook. */
  reveal(row: Row): void;
  open(row: Row): void;
  save(row: Row): void;
  /** Compares the row with one of `others`. */
  compare(row: Row, others: Row[]): void;
}

interface Actions extends RowActions {
  remove(shown: Shown): void;
}

function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export class SidePanelPage {
  private readonly heading = make("h2", "hloscope-captures-head");
  private readonly note = make("p", "hloscope-captures-note");
  private readonly list = make("ul", "hloscope-captures-list");
  private readonly empty = make("div", "hloscope-captures-empty");
  private drawn = "";

  constructor(
    node: HTMLElement,
    private readonly actions: Actions,
  ) {
    this.note.setAttribute("role", "status");
    this.list.setAttribute("aria-label", "Captures");
    node.append(this.heading, this.note, this.list, this.empty);
  }

  /** Draws `state`, or the page for no notebook (null), if it changed; keeps the focus where it was. */
  present(state: State | null): void {
    const now = JSON.stringify(state, (key, value) =>
      key === "notebook" || key === "html" ? undefined : value,
    );
    if (now === this.drawn) return;
    this.drawn = now;
    const name = state ? state.path.slice(state.path.lastIndexOf("/") + 1) : "";
    this.heading.replaceChildren(name ? `Captures in ${name}` : "Captures");
    this.heading.title = state?.path ?? "";
    const rows = state?.rows ?? [];
    this.note.textContent = state ? noteOf(state) : "";
    this.note.hidden = !this.note.textContent;
    const focused = this.list.contains(document.activeElement)
      ? (document.activeElement as HTMLElement).dataset.at
      : undefined;
    this.list.replaceChildren(...rows.map((row) => this.row(row, rows)));
    this.list.hidden = !rows.length;
    if (focused !== undefined) {
      const again = [...this.list.querySelectorAll<HTMLElement>("button")];
      (again.find((b) => b.dataset.at === focused) ?? again[0])?.focus();
    }
    this.empty.replaceChildren(...(rows.length ? [] : emptyPage(state)));
    this.empty.hidden = rows.length > 0;
  }

  private row(row: Row, rows: Row[]): HTMLElement {
    const { shown, name, isLive } = row;
    const button = (what: string, label: string, title: string, click: () => void) => {
      const made = make("button", "", label);
      made.type = "button";
      made.title = title;
      made.dataset.at = `${shown.key} ${what}`;
      made.addEventListener("click", click);
      return made;
    };
    const where = `Show it in the notebook (cell ${shown.cell + 1})`;
    const open = button("reveal", name, where, () => this.actions.reveal(row));
    open.className = "hloscope-capture-name";
    const head = make("div", "hloscope-capture-head", open);
    if (!isLive) {
      const tag = make("span", "hloscope-capture-tag", "saved");
      tag.title = "The kernel does not have this capture; the view in the notebook is kept.";
      head.append(tag);
    }
    if (shown.shown) {
      const time = make("time", "", clock(shown.shown, new Date()));
      time.dateTime = shown.shown.toISOString();
      time.title = `Shown ${shown.shown.toLocaleString()}`;
      head.append(time);
    }
    const remove = button("remove", "×", "Remove it from this list; the notebook keeps it", () =>
      this.actions.remove(shown),
    );
    remove.setAttribute("aria-label", `Remove ${name} from this list`);
    remove.className = "hloscope-capture-remove";
    head.append(remove);

    const others = rows.filter((other) => other !== row && other.isLive);
    const compare = button("compare", "Compare…", "What differs from another capture", () =>
      this.actions.compare(row, others),
    );
    compare.disabled = !isLive || !others.length;
    if (!isLive) compare.title = "Run its cell again to compare it";
    else if (!others.length) compare.title = "Show another capture in this notebook first";
    const item = make("li", "hloscope-capture", head);
    for (const line of facts(shown, name)) item.append(make("div", "hloscope-capture-fact", line));
    item.append(
      make(
        "div",
        "hloscope-capture-actions",
        button("open", "Open", "The explorer in a tab beside the notebook", () =>
          this.actions.open(row),
        ),
        button("save", "Save HTML", "One offline page beside the notebook", () =>
          this.actions.save(row),
        ),
        compare,
      ),
    );
    return item;
  }
}

/** One line about the kernel, or "" when it makes no difference. */
function noteOf({ rows, hasKernel, status }: State): string {
  if (!rows.length) return "";
  const saved = rows.filter((row) => !row.isLive).length;
  if (!hasKernel) return "No kernel: these are the views saved in the notebook.";
  if (/restarting/.test(status)) return "The kernel is restarting.";
  if (!saved) return "";
  const which = saved === rows.length ? "These views are" : `${saved} of ${rows.length} are`;
  return `${which} of a kernel that has ended. Run a cell again to get its capture back.`;
}

function emptyPage(state: State | null): HTMLElement[] {
  if (!state) {
    return [make("p", "", "Open a notebook: the captures that it shows are listed here.")];
  }
  if (state.hidden) {
    return [
      make(
        "p",
        "",
        "All captures were removed from this list. Run a cell again to list its capture.",
      ),
    ];
  }
  return [
    make("p", "", "This notebook shows no capture yet. In a cell:"),
    make("pre", "", "%load_ext hloscope\n%hlo step(params, batch)"),
    make("p", "", "or right-click a call in a cell and choose Explore HLO."),
  ];
}
