/** Sixteen-pixel line icons, defined here so that no file or font is fetched. */
import { svg } from "../../base/dom.ts";

const PATHS = {
  back: "M10 3 5 8l5 5",
  forward: "m6 3 5 5-5 5",
  openAll: "M8 2v5M8 14V9M5 4.5 8 1.5l3 3M5 11.5l3 3 3-3M2 8h12",
  closeAll: "M8 1v5M8 15v-5M5 3.5l3 3 3-3M5 12.5l3-3 3 3M2 8h12",
  reset: "M3 8a5 5 0 1 0 1.5-3.5M3 2v3h3",
  fit: "M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4",
  zoomIn: "M8 3v10M3 8h10",
  zoomOut: "M3 8h10",
  undo: "M6 3 2.5 6.5 6 10M2.5 6.5H10a3.5 3.5 0 0 1 0 7H6",
  redo: "M10 3l3.5 3.5L10 10M13.5 6.5H6a3.5 3.5 0 0 0 0 7h4",
  moves: "M8 2v4M8 10v4M5.5 8a2.5 2.5 0 1 0 5 0 2.5 2.5 0 1 0-5 0",
  bookmark: "M4 2h8v12l-4-3.5L4 14z",
  plumbing: "M2 4h5v8h7M7 4h7M2 12h5",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  full: "M9.5 6.5 14 2M10 2h4v4M6.5 9.5 2 14M2 10v4h4",
  save: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
  hide: "m5 3 5 5-5 5M13 3v10",
  show: "M11 3 6 8l5 5M3 3v10",
  details: "M2 3h12v10H2zM5 6h6M5 9h4",
  text: "M3 3.5h10M3 6.5h7M3 9.5h10M3 12.5h5",
  code: "M2 3h12v10H2zM8 3v10M4 6h2M4 8.5h2M10 6h2M10 8.5h2",
  cost: "M2 14V2M2 14h12M3 11l5-6h5.5",
  timeline: "M2 4h7M5 8h9M2 12h5M2 2v12",
  memory: "M2 13V9h2.5V5H7v3h3V3h2v6h2v4z",
  collectives: "M3 5h9M9.5 2.5 12 5 9.5 7.5M13 11H4M6.5 8.5 4 11l2.5 2.5",
  devices: "M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z",
  source: "M5.5 4 2 8l3.5 4M10.5 4 14 8l-3.5 4",
  outline: "M2 3.5h6M5 8h9M5 12.5h9M2 3.5v9h3M2 8h3",
  search: "M7 2a5 5 0 1 0 0 10A5 5 0 0 0 7 2M10.7 10.7 14 14",
  measured: "M8 4a5 5 0 1 0 0 10A5 5 0 0 0 8 4M8 6.5V9l2 1.5M6 1.5h4",
  compiler: "M2 3h12v10H2zM4.5 6 7 8l-2.5 2M8.5 10.5h3",
  diff: "M5 2v12M11 2v12M2.5 5h5M8.5 11h5",
  findings: "M8 2 14.5 13.5h-13zM8 6.5v3.5M8 12v.1",
  passes: "M3 3h10M3 8h10M3 13h10M8 3v10",
  panel: "M2 3h12v10H2z",
} as const;

/** The icon of a panel's tab; a plain frame for a panel without its own. */
export function panelIcon(id: string): SVGElement {
  return icon(id in PATHS ? (id as Icon) : "panel");
}

export type Icon = keyof typeof PATHS;

export function icon(name: Icon): SVGElement {
  return svg(
    "svg",
    { viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: PATHS[name] }),
  );
}
