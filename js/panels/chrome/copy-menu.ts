/** A right click on a figure of a panel offers to copy it, its row, or its whole table. */
import { copyText } from "../../base/dom.ts";
import { type MenuItem, menu } from "./popover.ts";

const CELLS = "td, th, dd, dt, .figure, .bar, li";
const ROWS = "tr, .bar, li";
const TABLES = "table, dl, .bars, ul, ol";

/** The pieces of text in it, one space apart. */
function words(element: Element): string {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const parts: string[] = [];
  while (walker.nextNode()) parts.push(walker.currentNode.textContent ?? "");
  return parts.join(" ").replace(/\s+/g, " ").trim();
}

/** Rows of a table, of facts or of bars, their cells separated by tabs. */
function asTable(table: Element): string {
  if (table.matches("dl")) {
    const pairs = [...table.querySelectorAll("dt")].map((name) => {
      const value = name.nextElementSibling;
      return `${words(name)}\t${value ? words(value) : ""}`;
    });
    return pairs.join("\n");
  }
  return [...table.querySelectorAll(ROWS)].map(asRow).filter(Boolean).join("\n");
}

function asRow(row: Element): string {
  const cells = row.matches("tr") ? [...row.children] : [...row.querySelectorAll(":scope > *")];
  return (cells.length ? cells : [row]).map(words).filter(Boolean).join("\t");
}

export function copyMenu(root: HTMLElement, panel: HTMLElement, signal: AbortSignal): void {
  let box: HTMLElement | null = null;
  const close = () => {
    box?.remove();
    box = null;
  };
  panel.addEventListener(
    "contextmenu",
    (event) => {
      close();
      const at = event.composedPath()[0];
      const cell = at instanceof Element ? at.closest(CELLS) : null;
      // What is marked with the pointer has the browser's own menu.
      if (!cell || !panel.contains(cell) || String(getSelection() ?? "")) return;
      const text = words(cell);
      if (!text) return;
      const copy = (label: string, what: string): MenuItem => ({
        label,
        run: () => void copyText(what),
      });
      const row = cell.closest(ROWS);
      const table = cell.closest(TABLES);
      const items = [copy(`Copy “${text.length > 40 ? `${text.slice(0, 39)}…` : text}”`, text)];
      if (row && asRow(row) !== text) items.push(copy("Copy the row", asRow(row)));
      if (table) items.push(copy("Copy the table", asTable(table)));
      event.preventDefault();
      box = menu(items, close);
      box.classList.add("popover", "box-menu");
      box.setAttribute("aria-label", "Copy");
      root.append(box);
      const frame = root.getBoundingClientRect();
      const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
      box.style.left = `${Math.max(4, Math.min(x, frame.width - box.offsetWidth - 8))}px`;
      box.style.top = `${Math.max(4, Math.min(y, frame.height - box.offsetHeight - 8))}px`;
      (box.querySelector("button") as HTMLElement | null)?.focus();
    },
    { signal },
  );
  root.addEventListener(
    "keydown",
    (event) => {
      if (!box || event.key !== "Escape") return;
      close();
      event.preventDefault();
      event.stopImmediatePropagation();
    },
    { signal, capture: true },
  );
  root.addEventListener(
    "pointerdown",
    (event) => {
      if (box && !event.composedPath().includes(box)) close();
    },
    { signal, capture: true },
  );
}
