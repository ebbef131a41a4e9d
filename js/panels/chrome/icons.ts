/** Sixteen-pixel line icons, drawn here so that no file or font is fetched. */
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
  plumbing: "M2 4h5v8h7M7 4h7M2 12h5",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  full: "M9.5 6.5 14 2M10 2h4v4M6.5 9.5 2 14M2 10v4h4",
  save: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
  side: "M2 3h12v10H2zM10 3v10",
} as const;

export type Icon = keyof typeof PATHS;

export function icon(name: Icon): SVGElement {
  return svg(
    "svg",
    { viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: PATHS[name] }),
  );
}
