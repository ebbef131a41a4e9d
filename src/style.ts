/** Styles of the extension's own pages and panels; the explorer has its own in a shadow root. */
import css from "./style.css";

let added = false;

export function addStyles(): void {
  if (added) return;
  added = true;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
