/** The planning bundle: `render` for anywidget, `start` for a saved page. */
export { start } from "./plan-page.ts";
export { render } from "./plan-widget.ts";
