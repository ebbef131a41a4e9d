/** The rows of the outline: what is grouped how, which rows are open, and in which order they stand. */

import type { ViewModel } from "../../base/model.ts";
import {
  type Grouping,
  type Metric,
  type ProfileRow,
  profileRows,
} from "../../state/cost/op-profile.ts";
import { groupPath } from "../../state/members.ts";
import type { Selection } from "../../view.ts";
import type { Coloring } from "../panel.ts";

export interface TreeRow extends ProfileRow {
  depth: number;
  position: number;
  siblings: number;
}

/** With fewer groups than this, fusions and reducers are shown from the beginning. */
const FEW_GROUPS = 8;
/** Rows that are open at first: about a screenful, and never more than the second number. */
const SCREENFUL = 24;
const MOST_OPEN = 40;

/** The colourings that are amounts with anything to add up. */
export function metricsOf(model: ViewModel, colorings: readonly Coloring[]): Metric[] {
  return colorings.flatMap((coloring) => {
    const { id, label, unit = "" } = coloring;
    const values = coloring.amounts?.(model);
    if (!values || !Array.prototype.some.call(values, (value: number) => value > 0)) return [];
    return [{ id, label, unit, values }];
  });
}

/** Measured time if there is any, else modelled time, else the first metric; -1 for none. */
function firstMetric(metrics: readonly Metric[]): number {
  for (const id of ["measured", "seconds"]) {
    const at = metrics.findIndex((metric) => metric.id === id);
    if (at >= 0) return at;
  }
  return metrics.length ? 0 : -1;
}

export class OutlineTree {
  rows: TreeRow[] = [];
  /** Key of the row that the keyboard is at. */
  focus = "";
  /** Index of the metric in the columns; -1 for none. */
  metric: number;
  grouping: Grouping = "scope";
  /** Most first, rather than in program order. */
  sorted = false;
  /** With fusions and reducers. */
  detail: boolean;
  /** The metric of the whole program. */
  private whole = 0;
  private roots: ProfileRow[] = [];
  private readonly open = new Set<string>();
  private readonly inner = new Map<string, ProfileRow[]>();

  constructor(
    private readonly model: ViewModel,
    readonly metrics: readonly Metric[],
  ) {
    this.metric = firstMetric(metrics);
    let large = 0;
    for (let g = 0; g < model.group.count; g++) if (!this.isSmall(g)) large++;
    this.detail = large < FEW_GROUPS;
    this.build();
    this.openFirst();
  }

  /** To be called when the metric, the grouping or the detail has changed. */
  build(): void {
    const { metric } = this;
    this.inner.clear();
    this.roots = profileRows(this.model, [...this.metrics], this.grouping, this.detail);
    this.whole = metric < 0 ? 0 : this.roots.reduce((sum, row) => sum + row.sums[metric], 0);
  }
  /** Makes `rows` anew from what is open. */
  flatten(): void {
    this.rows = [];
    this.append(this.roots, 0);
    if (this.at < 0) this.focus = this.rows[0]?.key ?? "";
  }
  /** Position of the focus in `rows`. */
  get at(): number {
    return this.rows.findIndex((row) => row.key === this.focus);
  }
  isOpen(row: ProfileRow): boolean {
    return this.open.has(row.key);
  }
  setOpen(row: ProfileRow, open: boolean): void {
    if (open) this.open.add(row.key);
    else this.open.delete(row.key);
  }
  /** Position of the row around the one at `at`. */
  parentOf(at: number): number {
    let up = at;
    while (up > 0 && this.rows[up].depth >= this.rows[at].depth) up--;
    return up;
  }
  /** Part of the whole, from 0 to 1. */
  share(value: number): number {
    return this.whole > 0 ? value / this.whole : 0;
  }
  /** Opens the tree down to a selection and moves the focus there. */
  follow(selection: Selection): void {
    if (this.grouping !== "scope") return;
    const path = groupPath(this.model, selection);
    while (!this.detail && path.length && this.isSmall(path[path.length - 1])) path.pop();
    if (!path.length) return;
    const { fold } = this.model.group;
    for (const g of path.slice(0, -1)) this.open.add(`g${g}`);
    for (const g of path) if (fold[g] >= 0) this.open.add(`f${fold[g]}`);
    this.focus = selection.kind === "fold" ? `f${selection.index}` : `g${path[path.length - 1]}`;
  }

  private isSmall(group: number): boolean {
    return ["fusion", "reducer"].includes(this.model.groupKind(group));
  }
  private inside(row: ProfileRow): ProfileRow[] {
    let rows = this.inner.get(row.key);
    if (!rows) {
      rows = row.inside?.() ?? [];
      this.inner.set(row.key, rows);
    }
    return rows;
  }
  private append(siblings: ProfileRow[], depth: number): void {
    const { metric } = this;
    const ordered =
      this.sorted && metric >= 0
        ? [...siblings].sort((a, b) => b.sums[metric] - a.sums[metric])
        : siblings;
    ordered.forEach((row, k) => {
      this.rows.push({ ...row, depth, position: k + 1, siblings: ordered.length });
      if (this.isOpen(row)) this.append(this.inside(row), depth + 1);
    });
  }
  /** Opens the top levels until a screenful is shown. */
  private openFirst(): void {
    let front = this.roots;
    for (let shown = front.length; front.length && shown < SCREENFUL; shown += front.length) {
      const groups = front.filter((row) => row.selection?.kind === "group");
      for (const row of groups) this.setOpen(row, true);
      front = groups.flatMap((row) => this.inside(row).filter((inner) => inner.inside));
      if (shown + front.length > MOST_OPEN) break;
    }
  }
}
