/** The explorer's style sheet, adopted by its shadow root, where neither page styles nor a CSP reach. */
import base from "./css/base.css";
import colors from "./css/colors.css";
import layout from "./css/layout.css";
import legend from "./css/legend.css";
import lists from "./css/lists.css";
import code from "./css/panels/code.css";
import collectives from "./css/panels/collectives.css";
import cost from "./css/panels/cost.css";
import heat from "./css/panels/heat.css";
import passes from "./css/panels/passes.css";
import source from "./css/panels/source.css";
import text from "./css/panels/text.css";
import timeline from "./css/panels/timeline.css";
import parts from "./css/parts.css";
import tables from "./css/tables.css";
import toolbar from "./css/toolbar.css";

/** Later ones win where two rules are equally specific. */
const SHEETS = [
  ...[colors, base, toolbar, layout, legend, parts, lists],
  ...[timeline, text, cost, tables, source, collectives, heat, code, passes],
];

export function styleSheet(): CSSStyleSheet {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(SHEETS.join(""));
  return sheet;
}
