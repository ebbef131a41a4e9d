/** The explorer's bundle: `render` for anywidget, `start` for a saved page. */
export { start } from "./snapshot.ts";
export { render } from "./widget.ts";
