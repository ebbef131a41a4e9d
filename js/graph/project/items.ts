/**
 * Text, chips and sizes of the items of a projection. Chips sit inside their box, in a row of
 * their own, so that edges never cross them.
 */
import { Flag } from "../../view.ts";
import * as M from "../metrics.ts";
import { contentLines } from "./contents.ts";
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
  /** How many chips `More` stands for. */
  count: number;
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
  /** Lines between label and second line: what a closed container holds. */
  lines: string[];
  /** Last line, or the muted part of a title. */
  sub: string;
  /** Whether the last line stands below the others; else only where a colouring writes there. */
  counted: boolean;
  chips: Chip[];
  /** Whether a closed item has next to none of the work: its second line is seen when zoomed. */
  small: boolean;
  /** Whether it is operations, no call, that cost next to nothing: it is drawn quietly. */
  quiet: boolean;
  /** Whether it is small operations of several lines, that stand between the program's parts. */
  rest: boolean;
  width: number;
  height: number;
}

const MAX_LABEL = 210;
const MAX_GROUP_LABEL = 250;
/** Wider, because a matmul's box is there to show its two shapes. */
const MAX_LANDMARK_LABEL = 270;
const MAX_CHIP = 112;
const MAX_CHIPS = 3;
/** Chips widen a box only to this: names of values are worth less than another box beside it. */
const CHIPS_ROOM = 110;
const CHIPS_PAD = 12;
/** What a closed container holds has no more lines than this, and is followed by counts below them. */
export const CONTENT_LINES = 2;
/** Their width. */
const CONTENT_ROOM = 230;
/** Of one with next to no work it stands beside the name. */
const ASIDE_ROOM = 130;
/** Of small operations it is the name. */
const REST_ROOM = 165;
export const ASIDE_GAP = 7;
/** Small operations are lower than other boxes by this. */
const QUIETER = 6;
const TITLE_GAP = 20;
const NO_CHIPS: Chip[] = [];
/** An item with less of the program's work and of its operations is as low as an operation. */
const SMALL_WORK = 0.01;
/** How many times the least work of a stack's members the most is for their sizes to differ. */
const OTHER_SIZE = 2;
const SMALL_COUNT = 0.05;

const INPUTS = [ChipKind.Parameter, ChipKind.Constant, ChipKind.From];
const isInput = (kind: ChipKind): boolean => INPUTS.includes(kind);

export class ItemWriter {
  /** Text of boxes without stubs, which does not depend on what is open. */
  private boxes = new Map<number, ItemText>();
  /** Lines below the name of a closed container, of what it holds and then of counts. */
  private lines = 1;
  /** Second lines of closed groups: they look far into them. */
  private summaries = new Map<number, { lines: string[]; sub: string }>();

  constructor(
    private tree: Tree,
    private flow: Flow,
    private counts: FamilyCounts,
    private metrics: M.TextMetrics,
  ) {}

  /** Sets how many lines a closed container has below its name. */
  get most(): number {
    return this.lines;
  }
  set most(lines: number) {
    if (lines === this.lines) return;
    this.lines = lines;
    this.boxes.clear();
    this.summaries.clear();
  }
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
    const named = this.chipsOf(node, kind, stubs);
    if (kind === ItemKind.Box) {
      const most = this.tree.model.has(node, Flag.Landmark) ? MAX_LANDMARK_LABEL : MAX_LABEL;
      const label = m.fit(itemLabel(this.tree, p, item), M.LABEL_SIZE, most);
      const sub = this.tree.model.denseShape(node);
      const sign = this.tree.canOpen(node) ? M.SIGN : 0;
      let width = Math.max(48, m.width(label, M.LABEL_SIZE) + 20 + sign);
      // The shape is shown at high zoom, in letters of about half the size.
      width = Math.max(width, Math.min(120, m.width(sub, M.SHAPE_SIZE) + 14));
      const opcode = node < this.tree.instructions ? this.tree.model.opcode(node) : "";
      const holds = opcode === "while" || opcode === "conditional";
      const lines = holds ? this.summaryOf(node, this.isSmall(node, 1)).lines : [];
      for (const line of lines) width = Math.max(width, m.width(line, M.SUB_SIZE) + 22);
      const own = lines.length > 0 ? named.filter((c) => !isInput(c.kind)) : named;
      const chips = this.fitting(own, Math.max(width, CHIPS_ROOM) - CHIPS_PAD);
      const top = M.BOX_HEIGHT + lines.length * M.LINE_HEIGHT;
      width = Math.max(width, this.place(chips, width, top - 2));
      const height = top + (chips.length > 0 ? M.CHIP_HEIGHT + 3 : 0);
      const { model } = this.tree;
      const quiet = model.has(node, Flag.Little) && !model.has(node, Flag.Landmark);
      return {
        label,
        lines,
        sub,
        counted: true,
        chips,
        small: false,
        quiet,
        rest: false,
        width,
        height,
      };
    }
    if (kind === ItemKind.Open) {
      const label = m.fit(itemLabel(this.tree, p, item), M.TITLE_SIZE, 320, true);
      const inner = this.counts.total(this.insideOf(p, item));
      // A fusion counts as one op from outside; once open, its instructions are counted.
      const held = p.childOffsets[item + 1] - p.childOffsets[item];
      const fused = node < this.tree.instructions && inner <= 1;
      const amount = ops(fused ? held : inner);
      const stands = node >= this.tree.stacks; // for all members of a fold
      const alike = stands ? 1 : this.tree.alike(node).length;
      const each = stands ? this.each(p, item, amount) : amount;
      const sub = item === 0 ? "" : alike > 1 ? `one of ${alike} · ${amount}` : each;
      const name = m.width(label, M.TITLE_SIZE, true);
      let width = name + m.width(sub, M.SUB_SIZE) + 30 + M.SIGN;
      const kept = named.filter((c) => !isInput(c.kind));
      if (kept.length > 0) width += this.measure(kept) + TITLE_GAP;
      return {
        label,
        lines: [],
        sub,
        counted: true,
        chips: named,
        small: false,
        quiet: false,
        rest: false,
        width,
        height: M.HEADER_HEIGHT,
      };
    }
    const stack = kind === ItemKind.Stack;
    const inside = stack ? this.tree.firstOf(node) : node;
    const times = stack ? p.stackEnd[item] - (node - this.tree.stacks) : 0;
    const small = this.isSmall(inside, times);
    const quiet = small && this.isOfOperations(inside);
    const { lines: holds, sub: amounts } = this.summaryOf(inside, small);
    const rest = quiet && this.isSection(inside);
    const own = m.fit(itemLabel(this.tree, p, item), M.LABEL_SIZE, MAX_GROUP_LABEL, !quiet);
    // What is in small operations says more than how many they are.
    const [label, lines] = rest && holds.length > 0 ? [holds[0], [own]] : [own, holds];
    const sub = stack ? this.each(p, item, amounts) : amounts;
    const badge = stack ? m.width(`×${times}`, M.LABEL_SIZE, true) + 16 : 0;
    const name = m.width(label, M.LABEL_SIZE, !quiet) + badge + 22 + M.SIGN;
    const counted = lines.length === 0 || this.lines > CONTENT_LINES;
    const widest = Math.max(
      ...[...lines, counted ? sub : ""].map((line) => m.width(line, M.SUB_SIZE)),
    );
    const aside = small && lines.length > 0 ? m.width(lines[0], M.SUB_SIZE) + ASIDE_GAP : 0;
    let width = small ? name + aside : Math.max(96, name, widest + 22);
    let height = small
      ? M.BOX_HEIGHT - (quiet ? QUIETER : 0)
      : M.BOX_HEIGHT + (lines.length + Number(counted)) * M.LINE_HEIGHT + 2;
    const chips = this.fitting(named, Math.max(width, CHIPS_ROOM) - CHIPS_PAD);
    width = Math.max(width, this.place(chips, width, height - (small ? 2 : 5)));
    if (chips.length > 0) height += M.CHIP_HEIGHT + 3;
    if (stack) {
      width += 2 * M.STACK_OFFSET;
      height += 2 * M.STACK_OFFSET;
    }
    return {
      label,
      lines,
      sub,
      counted,
      chips,
      small,
      quiet,
      rest,
      width,
      height,
    };
  }

  /**
   * Amounts of a stack's first member as those of each: "about" where others have more or less.
   * Members that do the same with arrays of other sizes are not the same work, and it says so.
   */
  private each(p: Projection, item: number, amounts: string): string {
    const { tree, counts } = this;
    const { values } = tree.model.fold.members;
    const first = p.nodes[item] - tree.stacks;
    const own = counts.of(tree.firstOf(p.nodes[item]));
    const others = values.subarray(first + 1, p.stackEnd[item]);
    const alike = others.every((g) => counts.of(tree.node(g)).every((n, k) => n === own[k]));
    const works = [...values.subarray(first, p.stackEnd[item])].map((g) =>
      worthOf(tree, tree.node(g)),
    );
    const differ = Math.max(...works) > OTHER_SIZE * Math.min(...works);
    return `${alike ? "" : "about "}${amounts} each${differ ? ", sizes differ" : ""}`;
  }
  /** What is in a closed container, and how much of what. */
  private summaryOf(node: number, small: boolean): { lines: string[]; sub: string } {
    const key = 2 * node + Number(small); // a stack of small layers may not be small
    let found = this.summaries.get(key);
    if (found === undefined) {
      const { tree, flow, metrics } = this;
      const room = this.isSection(node) ? REST_ROOM : small ? ASIDE_ROOM : CONTENT_ROOM;
      const lines = contentLines(
        tree,
        flow,
        node,
        small ? 1 : Math.min(this.lines, CONTENT_LINES),
        (line) => {
          return metrics.width(line, M.SUB_SIZE) <= room;
        },
      );
      if (room === REST_ROOM && lines.length > 0) {
        lines[0] = metrics.fit(lines[0], M.SUB_SIZE, room);
      }
      found = { lines, sub: summary(tree, this.counts, node, lines.length > 0) };
      this.summaries.set(key, found);
    }
    return found;
  }
  /** Whether an item has next to none of a program of which the work is known. */
  private isSmall(node: number, times: number): boolean {
    const { tree, counts } = this;
    const runs = Math.max(1, times);
    if (worthOf(tree, tree.root) === 0 || worthOf(tree, node) * runs >= SMALL_WORK) return false;
    if (this.isSection(node)) return true;
    return counts.total(node) * runs < SMALL_COUNT * counts.total(tree.root);
  }
  private isSection(node: number): boolean {
    const group = this.tree.groupOf(node);
    return group >= 0 && this.tree.model.groupKind(group) === "section";
  }
  /** Whether a group is no call of the person's. */
  private isOfOperations(node: number): boolean {
    const group = this.tree.groupOf(node);
    return group >= 0 && ["section", "component"].includes(this.tree.model.groupKind(group));
  }
  /** The innermost container merged into an open item, the one that contains its boxes. */
  private insideOf(p: Projection, item: number): number {
    const list = p.absorbed.get(item);
    return list ? list[list.length - 1] : p.nodes[item];
  }

  private chip(kind: ChipKind, name: string, value: number, count = 1): Chip {
    const text = this.metrics.fit(name, M.CHIP_SIZE, MAX_CHIP - 10);
    return { kind, text, value, count, x: 0, y: 0, w: 0 };
  }
  private chipsOf(node: number, kind: ItemKind, stubs: Stubs | undefined): Chip[] {
    const { tree, flow } = this;
    const inputs: Chip[] = [];
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
        inputs.push(this.chip(constant ? ChipKind.Constant : ChipKind.Parameter, text, c));
      }
    }
    if (nameless.length > 2) {
      inputs.push(this.chip(ChipKind.Parameter, `${nameless.length} parameters`, nameless[0]));
    } else {
      for (const c of nameless) inputs.push(this.chip(ChipKind.Parameter, chipLabel(tree, c), c));
    }
    if (stubs) {
      const backs = stubs.from.filter((s) => s.back);
      // Containers and groups show how many; boxes show which.
      if (kind !== ItemKind.Box && backs.length > 0) {
        inputs.push(this.chip(ChipKind.BackFrom, `↑ ${backs.length}`, backs[0].value));
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
            ? this.chip(ChipKind.BackFrom, `↑ ${name}`, value)
            : this.chip(ChipKind.From, `↓ ${name}`, value),
        );
      }
    }
    if (more > 0) inputs.push(this.chip(ChipKind.More, `+${more}`, -1, more));
    if (stubs && stubs.uses > 0)
      inputs.push(this.chip(ChipKind.To, `→ ${stubs.uses}`, stubs.value));
    if (stubs && stubs.backUses > 0) {
      inputs.push(this.chip(ChipKind.BackTo, `↺ ${stubs.backUses}`, stubs.value));
    }
    if (node < tree.instructions && isOutput(tree, flow, node)) {
      inputs.push(this.chip(ChipKind.Output, "output", node));
    }
    return inputs.length > 0 ? inputs : NO_CHIPS;
  }

  /** Chips of a title in the room that what is in the container leaves them. */
  fitTitle(text: ItemText, width: number): void {
    const kept = text.chips.filter((c) => !isInput(c.kind));
    const room = kept.length > 0 ? this.measure(kept) : -TITLE_GAP;
    text.chips = this.fitting(text.chips, width - text.width + room);
    this.place(text.chips, 0, 5);
  }
  /** The chips that there is room for: the last inputs are counted instead of named. */
  private fitting(chips: Chip[], room: number): Chip[] {
    const out = [...chips];
    while (this.measure(out) > room) {
      const last = out.map((c) => isInput(c.kind)).lastIndexOf(true);
      if (last < 0) break;
      const hidden = out[last].count;
      const more = out.find((c) => c.kind === ChipKind.More);
      if (more) {
        out.splice(last, 1);
        more.count += hidden;
        more.text = `+${more.count}`;
      } else if (out[last].text.length > 3) {
        out[last] = this.chip(ChipKind.More, `+${hidden}`, -1, hidden);
      } else break;
    }
    return out;
  }
  /** Places chips in a row, centered in `width`; returns the width they need. */
  private place(chips: Chip[], width: number, y: number): number {
    if (chips.length === 0) return 0;
    const total = this.measure(chips);
    const needed = total + CHIPS_PAD;
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
