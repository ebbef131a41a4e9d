/**
 * Text, chips and sizes of the items of a projection. Chips sit inside their box, in a row of
 * their own, so that edges never cross them.
 */
import { Flag } from "../../view.ts";
import * as M from "../metrics.ts";
import type { Flow } from "./flow.ts";
import { worthOf } from "./openness.ts";
import { ItemKind, type Projection } from "./projection.ts";
import type { Tree } from "./tree.ts";
import {
  chipLabel,
  type FamilyCounts,
  isOutput,
  itemLabel,
  nodeLabel,
  ops,
  summary,
} from "./words.ts";

export const enum ChipKind {
  Parameter = 0,
  Constant = 1,
  /** A value made elsewhere, whose edge would be too long. */
  From = 2,
  /** The source end of `From` chips. */
  To = 3,
  Output = 4,
  /** "+3": chips that did not fit. */
  More = 5,
  /** A value that comes from further down: part of a cycle between groups. */
  BackFrom = 6,
  BackTo = 7,
}

export interface Chip {
  kind: ChipKind;
  text: string;
  /** Instruction whose value it names; -1 for `More`. */
  value: number;
  /** Position within the item. */
  x: number;
  y: number;
  w: number;
}

/** Stubs of one item, as decided by the layout of its container. */
export interface Stubs {
  /** Values that arrive by stub, and the items they come from. */
  from: { value: number; item: number; back: boolean }[];
  /** Numbers of items that use this one's values by stub, along the flow and against it. */
  uses: number;
  backUses: number;
  /** A value that leaves by stub. */
  value: number;
}

export interface ItemText {
  label: string;
  /** Second line, or the muted part of a title. */
  sub: string;
  chips: Chip[];
  /** Whether a closed item has next to none of the work: its second line is seen when zoomed. */
  small: boolean;
  width: number;
  height: number;
}

const MAX_LABEL = 210;
const MAX_GROUP_LABEL = 250;
/** Wider, because a matmul's box is there to show its two shapes. */
const MAX_LANDMARK_LABEL = 270;
const MAX_CHIP = 112;
const MAX_CHIPS = 3;
const NO_CHIPS: Chip[] = [];
/** An item with less of the program's work and of its operations is as low as an operation. */
const SMALL_WORK = 0.01;
const SMALL_COUNT = 0.05;

export class ItemWriter {
  /** Text of boxes without stubs, which does not depend on what is open. */
  private boxes = new Map<number, ItemText>();
  /** Second lines of closed groups: they look far into them. */
  private summaries = new Map<number, string>();

  constructor(
    private tree: Tree,
    private flow: Flow,
    private counts: FamilyCounts,
    private metrics: M.TextMetrics,
  ) {}

  /** Text and size of a closed item; for an open one, of its header only. */
  write(p: Projection, item: number, stubs: Stubs | undefined): ItemText {
    const kind = p.kind[item];
    const node = p.nodes[item];
    const plain = kind === ItemKind.Box && !stubs;
    const known = plain ? this.boxes.get(node) : undefined;
    if (known) return known;
    const text = this.compose(p, item, stubs);
    if (plain) this.boxes.set(node, text);
    return text;
  }

  private compose(p: Projection, item: number, stubs: Stubs | undefined): ItemText {
    const kind = p.kind[item];
    const node = p.nodes[item];
    const m = this.metrics;
    const chips = this.chipsOf(node, kind, stubs);
    if (kind === ItemKind.Box) {
      const most = this.tree.model.has(node, Flag.Landmark) ? MAX_LANDMARK_LABEL : MAX_LABEL;
      const label = m.fit(itemLabel(this.tree, p, item), M.LABEL_SIZE, most);
      const sub = this.tree.model.denseShape(node);
      const sign = this.tree.canOpen(node) ? M.SIGN : 0;
      let width = Math.max(48, m.width(label, M.LABEL_SIZE) + 20 + sign);
      // The shape is shown at high zoom, in letters of about half the size.
      width = Math.max(width, Math.min(120, m.width(sub, M.SHAPE_SIZE) + 14));
      width = Math.max(width, this.place(chips, width, M.BOX_HEIGHT - 2));
      const height = M.BOX_HEIGHT + (chips.length > 0 ? M.CHIP_HEIGHT + 3 : 0);
      return { label, sub, chips, small: false, width, height };
    }
    if (kind === ItemKind.Open) {
      const label = m.fit(itemLabel(this.tree, p, item), M.TITLE_SIZE, 320, true);
      const inner = this.counts.total(this.insideOf(p, item));
      // A fusion counts as one op from outside; once open, its instructions are counted.
      const held = p.childOffsets[item + 1] - p.childOffsets[item];
      const fused = node < this.tree.instructions && inner <= 1;
      const sub = item === 0 ? "" : ops(fused ? held : inner);
      const name = m.width(label, M.TITLE_SIZE, true);
      let width = name + m.width(sub, M.SUB_SIZE) + 30 + M.SIGN;
      if (chips.length > 0) width += this.place(chips, 0, 5) + 8;
      return { label, sub, chips, small: false, width, height: M.HEADER_HEIGHT };
    }
    const stack = kind === ItemKind.Stack;
    const inside = stack ? this.memberNode(node - this.tree.stacks) : node;
    const label = m.fit(itemLabel(this.tree, p, item), M.LABEL_SIZE, MAX_GROUP_LABEL, true);
    const times = stack ? p.stackEnd[item] - (node - this.tree.stacks) : 0;
    const sub = `${this.summaryOf(inside)}${stack ? " each" : ""}`;
    const badge = stack ? m.width(`×${times}`, M.LABEL_SIZE, true) + 16 : 0;
    const name = m.width(label, M.LABEL_SIZE, true) + badge + 22 + M.SIGN;
    const small = this.isSmall(inside, times);
    let width = small ? name : Math.max(96, name, m.width(sub, M.SUB_SIZE) + 22);
    let height = small ? M.BOX_HEIGHT : M.CLOSED_HEIGHT;
    width = Math.max(width, this.place(chips, width, height - (small ? 2 : 5)));
    if (chips.length > 0) height += M.CHIP_HEIGHT + 3;
    if (stack) {
      width += 2 * M.STACK_OFFSET;
      height += 2 * M.STACK_OFFSET;
    }
    return { label, sub, chips, small, width, height };
  }

  private summaryOf(node: number): string {
    let found = this.summaries.get(node);
    if (found === undefined) {
      found = summary(this.tree, this.counts, node);
      this.summaries.set(node, found);
    }
    return found;
  }
  /** Whether an item has next to none of a program of which the work is known. */
  private isSmall(node: number, times: number): boolean {
    const { tree, counts } = this;
    const runs = Math.max(1, times);
    if (worthOf(tree, tree.root) === 0 || worthOf(tree, node) * runs >= SMALL_WORK) return false;
    const group = tree.groupOf(node);
    if (group >= 0 && tree.model.groupKind(group) === "section") return true;
    return counts.total(node) * runs < SMALL_COUNT * counts.total(tree.root);
  }
  memberNode(position: number): number {
    return this.tree.node(this.tree.model.fold.members.values[position]);
  }
  /** The innermost container merged into an open item, the one that contains its boxes. */
  private insideOf(p: Projection, item: number): number {
    const list = p.absorbed.get(item);
    return list ? list[list.length - 1] : p.nodes[item];
  }

  private chipsOf(node: number, kind: ItemKind, stubs: Stubs | undefined): Chip[] {
    const { tree, flow } = this;
    const inputs: Chip[] = [];
    const chip = (kind: ChipKind, text: string, value: number): Chip => ({
      kind,
      text: this.metrics.fit(text, M.CHIP_SIZE, MAX_CHIP - 10),
      value,
      x: 0,
      y: 0,
      w: 0,
    });
    const loop = node < tree.instructions && tree.model.opcode(node) === "while";
    let more = 0;
    // Parameters without names are counted rather than listed.
    const nameless: number[] = [];
    if (node < tree.instructions && kind !== ItemKind.Stack) {
      for (let e = flow.chipOffsets[node]; e < flow.chipOffsets[node + 1]; e++) {
        const c = flow.chips[e];
        // Initial values of a loop: zeros, and memory that it fills.
        if (loop && !tree.model.has(c, Flag.Parameter)) continue;
        const text = chipLabel(tree, c);
        if (/^parameter \d+$/.test(text)) {
          nameless.push(c);
          continue;
        }
        if (inputs.length === MAX_CHIPS) {
          more++;
          continue;
        }
        const constant = tree.model.opcode(c) === "constant" || tree.model.opcode(c) === "iota";
        inputs.push(chip(constant ? ChipKind.Constant : ChipKind.Parameter, text, c));
      }
    }
    if (nameless.length > 2) {
      inputs.push(chip(ChipKind.Parameter, `${nameless.length} parameters`, nameless[0]));
    } else {
      for (const c of nameless) inputs.push(chip(ChipKind.Parameter, chipLabel(tree, c), c));
    }
    if (stubs) {
      const backs = stubs.from.filter((s) => s.back);
      // Containers and groups show how many; boxes show which.
      if (kind !== ItemKind.Box && backs.length > 0) {
        inputs.push(chip(ChipKind.BackFrom, `↑ ${backs.length}`, backs[0].value));
      }
      for (const { value, back } of stubs.from) {
        if (back && kind !== ItemKind.Box) continue;
        if (inputs.length >= MAX_CHIPS) {
          more++;
          continue;
        }
        const name = nodeLabel(tree, value);
        inputs.push(
          back
            ? chip(ChipKind.BackFrom, `↑ ${name}`, value)
            : chip(ChipKind.From, `↓ ${name}`, value),
        );
      }
    }
    if (more > 0) inputs.push(chip(ChipKind.More, `+${more}`, -1));
    if (stubs && stubs.uses > 0) inputs.push(chip(ChipKind.To, `→ ${stubs.uses}`, stubs.value));
    if (stubs && stubs.backUses > 0) {
      inputs.push(chip(ChipKind.BackTo, `↺ ${stubs.backUses}`, stubs.value));
    }
    if (node < tree.instructions && isOutput(tree, flow, node)) {
      inputs.push(chip(ChipKind.Output, "output", node));
    }
    return inputs.length > 0 ? inputs : NO_CHIPS;
  }

  /** Places chips in a row, centered in `width`; returns the width they need. */
  private place(chips: Chip[], width: number, y: number): number {
    if (chips.length === 0) return 0;
    const total = this.measure(chips);
    const needed = total + 12;
    this.line(chips, (Math.max(width, needed) - total) / 2, y);
    return needed;
  }
  private measure(chips: Chip[]): number {
    let total = M.CHIP_GAP * (chips.length - 1);
    for (const chip of chips) total += this.metrics.width(chip.text, M.CHIP_SIZE) + 10;
    return total;
  }
  private line(chips: Chip[], from: number, y: number): void {
    let x = from;
    for (const chip of chips) {
      chip.w = this.metrics.width(chip.text, M.CHIP_SIZE) + 10;
      chip.x = x;
      chip.y = y;
      x += chip.w + M.CHIP_GAP;
    }
  }
}
