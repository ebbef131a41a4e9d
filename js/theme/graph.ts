/**
 * Every colour of the graph, in one object, so that hosts can supply their own.
 *
 * Families use hues of Okabe and Ito's palette (distinguishable with any common colour vision),
 * lightened on white and darkened on black until the box text has a contrast of at least 4.5.
 */

export interface GraphTheme {
  dark: boolean;
  /** CSS font family of every label. */
  font: string;
  background: string;
  /** Fills of open containers, by depth modulo their number. */
  containers: string[];
  containerBorder: string;
  /** Titles of containers. */
  title: string;
  /** Text on boxes, on `group`, and on every family colour. */
  text: string;
  /** Second lines: counts, shapes. */
  mutedText: string;
  group: string;
  groupBorder: string;
  fold: string;
  foldBorder: string;
  boxBorder: string;
  /** Chips: parameters, constants, outputs, stubs. */
  chip: string;
  chipText: string;
  output: string;
  edge: string;
  backEdge: string;
  selection: string;
  operandEdge: string;
  userEdge: string;
  highlight: string;
  /** Marks where a value changes its sharding. */
  reshard: string;
  /** Moves beside the computation: covered by other work, and waited for. */
  moved: string;
  exposed: string;
  /** Fill per family id; `other` is for families that are not listed. */
  families: Record<string, string>;
  /** Low → high, for numeric colourings. */
  ramp: string[];
  /** Fill of boxes whose value is 0, and of those in no category. */
  zero: string;
  /** Fill of boxes whose value is unknown; their border is dashed. */
  unknown: string;
  /** Fills for categorical colourings, reused in turn. */
  categories: string[];
  /** What a pass kept, added, removed and changed; the edges have a contrast of at least 3. */
  steps: {
    kept: string;
    added: string;
    addedEdge: string;
    removed: string;
    removedEdge: string;
    changed: string;
    changedEdge: string;
  };
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

export const LIGHT: GraphTheme = {
  dark: false,
  font: FONT,
  background: "#ffffff",
  containers: ["#f6f8fb", "#ffffff", "#eff3f8", "#ffffff"],
  containerBorder: "#c3cedb",
  title: "#2f3e50",
  text: "#16202b",
  mutedText: "#4d5c6d",
  group: "#eef2f7",
  groupBorder: "#8497ad",
  fold: "#fff3c9",
  foldBorder: "#b08d1a",
  boxBorder: "#00000038",
  chip: "#ffffff",
  chipText: "#43525f",
  output: "#d8f0e2",
  edge: "#7c8a9a",
  backEdge: "#b3487f",
  selection: "#0b57d0",
  operandEdge: "#0072b2",
  userEdge: "#c05000",
  highlight: "#0b57d0",
  reshard: "#8a2be2",
  moved: "#4d6478",
  exposed: "#c4281c",
  families: {
    other: "#dfe5ec",
    matmul: "#f5a623",
    convolution: "#f4e04d",
    collective: "#f08a75",
    custom_call: "#eec6b4",
    control_flow: "#7fd0b0",
    linear_algebra: "#e6bfd7",
    rng: "#cfe3a4",
    transfer: "#b7e0ea",
    reduction: "#bca6ee",
    fusion: "#9ccaf2",
    elementwise: "#cddff0",
    data_movement: "#dcdfc4",
    constant: "#f3f4f6",
    parameter: "#f3f4f6",
    plumbing: "#eceff3",
  },
  ramp: ["#fdf0bf", "#fbd07a", "#f6a94a", "#e8743b", "#e26453"],
  zero: "#e3e8ee",
  unknown: "#ffffff",
  categories: [
    "#9cc9ee",
    "#f5b968",
    "#8fd6b8",
    "#e6bfd7",
    "#f3e27a",
    "#c3b4ea",
    "#f3a08f",
    "#c9d3a0",
    "#b9dff0",
    "#dcc7b0",
  ],
  steps: {
    kept: "#e9eef4",
    added: "#a9dfc6",
    addedEdge: "#067a55",
    removed: "#f6cfc4",
    removedEdge: "#b8401f",
    changed: "#f3dd8f",
    changedEdge: "#8a6a00",
  },
};

export const DARK: GraphTheme = {
  dark: true,
  font: FONT,
  background: "#14181d",
  containers: ["#1a2027", "#14181d", "#1f262e", "#14181d"],
  containerBorder: "#3c4a59",
  title: "#d3dde8",
  text: "#f2f5f8",
  mutedText: "#b4c0cc",
  group: "#2b3643",
  groupBorder: "#6c8199",
  fold: "#4a3f14",
  foldBorder: "#c8a83c",
  boxBorder: "#ffffff38",
  chip: "#1b222a",
  chipText: "#b9c5d1",
  output: "#1d4431",
  edge: "#7f8fa1",
  backEdge: "#e07fb0",
  selection: "#7db4ff",
  operandEdge: "#56b4e9",
  userEdge: "#f0a13c",
  highlight: "#7db4ff",
  reshard: "#d59bff",
  moved: "#a9bccd",
  exposed: "#ff8f80",
  families: {
    other: "#36424f",
    matmul: "#9c5c00",
    convolution: "#3c4600",
    collective: "#97382a",
    custom_call: "#5f4b45",
    control_flow: "#13624a",
    linear_algebra: "#733c60",
    rng: "#44591c",
    transfer: "#1f5b70",
    reduction: "#6a4aa8",
    fusion: "#1f5686",
    elementwise: "#324a60",
    data_movement: "#555d63",
    constant: "#242b33",
    parameter: "#242b33",
    plumbing: "#2a323b",
  },
  ramp: ["#474017", "#634b14", "#7d5210", "#963f1e", "#b02a3c"],
  zero: "#2f3843",
  unknown: "#14181d",
  categories: [
    "#1f5686",
    "#77501a",
    "#13624a",
    "#733c60",
    "#5f5710",
    "#54458a",
    "#8a3a2c",
    "#4b5a22",
    "#1f5b70",
    "#5a4634",
  ],
  steps: {
    kept: "#2b3541",
    added: "#11573f",
    addedEdge: "#43c795",
    removed: "#5c2b1f",
    removedEdge: "#f0876a",
    changed: "#5a4a10",
    changedEdge: "#dcb73a",
  },
};

export function familyColor(theme: GraphTheme, family: string): string {
  return theme.families[family] ?? theme.families.other;
}
