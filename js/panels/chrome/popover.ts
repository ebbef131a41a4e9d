/** A small window below a button; Esc, a click elsewhere or leaving it with Tab closes it. */
import { fill, h } from "../../base/dom.ts";

export function popover(
  root: HTMLElement,
  button: HTMLElement,
  build: (close: () => void) => HTMLElement,
  signal: AbortSignal,
): void {
  let box: HTMLElement | null = null;
  const close = (focus = false) => {
    if (!box) return;
    const was = box;
    box = null;
    was.remove();
    button.setAttribute("aria-expanded", "false");
    if (focus) button.focus();
  };
  const open = () => {
    const made = build(() => close(true));
    made.classList.add("popover");
    box = made;
    root.append(made);
    const at = button.getBoundingClientRect();
    const frame = root.getBoundingClientRect();
    made.style.top = `${at.bottom - frame.top + 4}px`;
    const left = Math.min(at.left - frame.left, frame.width - made.offsetWidth - 8);
    made.style.left = `${Math.max(8, left)}px`;
    button.setAttribute("aria-expanded", "true");
    (made.querySelector("button,[tabindex]") as HTMLElement | null)?.focus();
  };
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => (box ? close() : open()), { signal });
  root.addEventListener(
    "keydown",
    (event) => {
      if (box && event.key === "Escape") {
        close(true);
        event.preventDefault();
        event.stopImmediatePropagation();
      }
    },
    { signal, capture: true },
  );
  root.addEventListener(
    "pointerdown",
    (event) => {
      const path = event.composedPath();
      if (box && !path.includes(box) && !path.includes(button)) close();
    },
    { signal },
  );
  root.addEventListener(
    "focusin",
    (event) => {
      if (box && !box.contains(event.target as Node) && event.target !== button) close();
    },
    { signal },
  );
}

export interface MenuItem {
  label: string;
  key?: string;
  disabled?: boolean;
  run(): void;
}

export function menu(items: MenuItem[], close: () => void): HTMLElement {
  const list = h("div", { class: "menu", role: "menu" });
  fill(
    list,
    ...items.map((item) =>
      h(
        "button",
        {
          type: "button",
          role: "menuitem",
          disabled: item.disabled,
          onclick: () => {
            close();
            item.run();
          },
        },
        item.label,
        item.key && h("kbd", null, item.key),
      ),
    ),
  );
  list.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll("button:not(:disabled)")] as HTMLElement[];
    const root = list.getRootNode() as ShadowRoot;
    const at = buttons.indexOf(root.activeElement as HTMLElement);
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!by) return;
    buttons[(at + by + buttons.length) % buttons.length]?.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  return list;
}
