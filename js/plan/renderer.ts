/** The planning bundle: `render` for anywidget, `start` for a saved page. */
export { start } from "./page.ts";
export { render } from "./widget.ts";
