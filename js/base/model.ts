/**
 * The decoded View with named columns, as graph, state and panels read it. Immutable, except for
 * the analyses that `extend` adds once they have arrived.
 */

import {
  ANALYSES_MAGIC,
  type AnalysesHeader,
  type Flag,
  type GroupKind,
  TEXT_MAGIC,
  VIEW_MAGIC,
  VIEW_VERSION,
  type ViewHeader,
} from "../view.ts";
import {
  BadBlock,
  type Block,
  type Column,
  columnOf,
  decodeBlock,
  gunzip,
  StringTable,
} from "./decode.ts";
import { plain } from "./plain.ts";
import { checkAnalyses, checkText, checkView } from "./validate.ts";

export interface Csr {
  offsets: Uint32Array;
  values: Uint32Array;
}

const stringsOf = ({ columns }: Pick<Block<never>, "columns">): StringTable =>
  new StringTable(columnOf(columns, "strings.bytes"), columnOf(columns, "strings.offsets"));

export class ViewModel {
  readonly header: ViewHeader;
  readonly strings: StringTable;
  readonly instruction: {
    count: number;
    name: Uint32Array;
    label: Uint32Array;
    code: Uint32Array;
    opcode: Uint16Array;
    family: Uint8Array;
    flags: Uint16Array;
    shape: Uint32Array;
    denseShape: Uint32Array;
    bytes: Float64Array;
    element: Int32Array;
    computation: Uint32Array;
    group: Uint32Array;
    opName: Uint32Array;
    frame: Int32Array;
  };
  readonly operands: Csr;
  readonly control: Csr;
  readonly called: Csr & { role: Uint8Array };
  readonly computation: {
    count: number;
    name: Uint32Array;
    first: Uint32Array;
    size: Uint32Array;
    root: Int32Array;
    group: Int32Array;
  };
  readonly group: {
    count: number;
    parent: Int32Array;
    kind: Uint8Array;
    label: Uint32Array;
    owner: Int32Array;
    computation: Int32Array;
    size: Uint32Array;
    order: Uint32Array;
    worth: Float32Array;
    /** 1 for a pass forward, 2 for one back; null in Views that do not say. */
    direction: Uint8Array | null;
    /**
     * Its place among the calls beside it in the order of the program, from 1; 0 where unknown, null in
     * Views that do not say.
     */
    turn: Uint32Array | null;
    /** The function that it is one call of several of; null in Views that do not say. */
    function: Uint32Array | null;
    class: Uint32Array;
    fold: Int32Array;
  };
  readonly fold: { count: number; parent: Uint32Array; label: Uint32Array; members: Csr };
  readonly frame: {
    count: number;
    file: Uint32Array;
    function: Uint32Array;
    line: Uint32Array;
    parent: Int32Array;
  };
  /** Incremented when analyses are added. */
  edition = 0;
  /** Incremented when time is modelled on another chip: what was derived from it is out of date. */
  figures = 0;
  /** What a block for another chip has replaced. */
  private replaced: {
    columns: Map<string, Column | undefined>;
    extras: ViewHeader["extras"];
    summary: ViewHeader["summary"];
  } | null = null;
  private usersCsr: Csr | null = null;

  constructor(private block: Block<ViewHeader>) {
    const c = <T extends Column>(name: string): T => this.column<T>(name);
    this.header = block.header;
    this.strings = stringsOf(block);
    const csr = (name: string, values = "values"): Csr => ({
      offsets: c(`${name}.offsets`),
      values: c(`${name}.${values}`),
    });
    this.instruction = {
      count: c("instruction.name").length,
      name: c("instruction.name"),
      label: c("instruction.label"),
      code: c("instruction.code"),
      opcode: c("instruction.opcode"),
      family: c("instruction.family"),
      flags: c("instruction.flags"),
      shape: c("instruction.shape"),
      denseShape: c("instruction.dense_shape"),
      bytes: c("instruction.bytes"),
      element: c("instruction.element"),
      computation: c("instruction.computation"),
      group: c("instruction.group"),
      opName: c("instruction.op_name"),
      frame: c("instruction.frame"),
    };
    this.operands = csr("operand");
    this.control = csr("control");
    this.called = { ...csr("called"), role: c("called.role") };
    this.computation = {
      count: c("computation.name").length,
      name: c("computation.name"),
      first: c("computation.first"),
      size: c("computation.size"),
      root: c("computation.root"),
      group: c("computation.group"),
    };
    this.group = {
      count: c("group.parent").length,
      parent: c("group.parent"),
      kind: c("group.kind"),
      label: c("group.label"),
      owner: c("group.owner"),
      computation: c("group.computation"),
      size: c("group.size"),
      order: c("group.order"),
      worth: c("group.worth"),
      direction: this.optional("group.direction"),
      turn: this.optional("group.turn"),
      function: this.optional("group.function"),
      class: c("group.class"),
      fold: c("group.fold"),
    };
    this.fold = {
      count: c("fold.parent").length,
      parent: c("fold.parent"),
      label: c("fold.label"),
      members: csr("fold", "members"),
    };
    this.frame = {
      count: c("frame.file").length,
      file: c("frame.file"),
      function: c("frame.function"),
      line: c("frame.line"),
      parent: c("frame.parent"),
    };
  }

  /** A required column; throws BadBlock when it is missing. */
  column<T extends Column>(name: string): T {
    return columnOf<T>(this.block.columns, name);
  }
  /** A column of an optional analysis, or null. */
  optional<T extends Column>(name: string): T | null {
    return (this.block.columns.get(name) as T | undefined) ?? null;
  }
  /** Adds the analyses' columns, extras, summary keys and warnings. */
  extend(block: Block<AnalysesHeader>): void {
    const { header } = block;
    if (header.instructions !== this.instruction.count) {
      throw new BadBlock("the file has changed since; load it again.");
    }
    checkAnalyses(block, this.block);
    this.takeColumns(block);
    Object.assign(this.header.extras, header.extras);
    Object.assign(this.header.summary, header.summary);
    this.header.warnings.push(...header.warnings);
    this.edition++;
  }
  private takeColumns({ header, columns }: Block<AnalysesHeader>): void {
    const base = this.strings.append(stringsOf({ columns }));
    for (const [name, column] of columns) {
      if (name.startsWith("strings.")) continue;
      const isText = header.columns[name].text;
      this.block.columns.set(name, isText ? column.map((id) => (id ? id + base : 0)) : column);
    }
  }
  /**
   * Takes the figures of another chip (`build_for_chip` in Python); null for those of the View's
   * own. Throws BadBlock, with its own in force.
   */
  useChip(block: Block<AnalysesHeader> | null): void {
    const { columns: own } = this.block;
    if (this.replaced) {
      for (const [name, column] of this.replaced.columns) {
        if (column) own.set(name, column);
        else own.delete(name);
      }
      Object.assign(this.header, { extras: this.replaced.extras, summary: this.replaced.summary });
      this.replaced = null;
    }
    this.edition++;
    this.figures++;
    if (!block) return;
    const { header, columns } = block;
    const without = new Set(header.without);
    const left = [...own].filter(([name]) => !without.has(name));
    checkAnalyses(block, { ...this.block, columns: new Map(left) });
    if (header.instructions !== this.instruction.count)
      throw new BadBlock("it is of another file.");
    const kept = new Map<string, Column | undefined>();
    for (const name of [...columns.keys(), ...(header.without ?? [])]) {
      if (!name.startsWith("strings.")) kept.set(name, own.get(name));
    }
    const { extras, summary } = this.header;
    const there = Object.entries(extras).filter(([key]) => !header.without?.includes(key));
    this.replaced = { columns: kept, extras, summary };
    for (const name of header.without ?? []) own.delete(name);
    this.takeColumns(block);
    Object.assign(this.header, {
      extras: { ...Object.fromEntries(there), ...header.extras },
      summary: { ...summary, ...header.summary },
    });
  }
  /** Id of the chip that the View itself models time on; null for none. */
  get ownChip(): string | null {
    return (this.replaced?.extras ?? this.header.extras).cost?.chosen ?? null;
  }
  /** Id of the chip whose figures are in force. */
  get shownChip(): string | null {
    return this.header.extras.cost?.chosen ?? null;
  }
  name(i: number): string {
    return this.strings.get(this.instruction.name[i]);
  }
  label(i: number): string {
    return this.strings.get(this.instruction.label[i]);
  }
  /** The person's code that an instruction is of; "" where it is not known. */
  code(i: number): string {
    return this.strings.get(this.instruction.code[i]);
  }
  opcode(i: number): string {
    return this.header.opcodes[this.instruction.opcode[i]] ?? "";
  }
  shape(i: number): string {
    return this.strings.get(this.instruction.shape[i]);
  }
  denseShape(i: number): string {
    return this.strings.get(this.instruction.denseShape[i]);
  }
  opName(i: number): string {
    return this.strings.get(this.instruction.opName[i]);
  }
  has(i: number, flag: Flag): boolean {
    return (this.instruction.flags[i] & flag) !== 0;
  }
  groupKind(g: number): GroupKind {
    return this.header.groupKinds[this.group.kind[g]];
  }
  groupLabel(g: number): string {
    return this.strings.get(this.group.label[g]);
  }
  /** The function of which a group is one call of several; "" if it is not. */
  groupFunction(g: number): string {
    return this.group.function ? this.strings.get(this.group.function[g]) : "";
  }
  /** Users of every instruction, each once, ascending; built on first use. */
  get users(): Csr {
    if (this.usersCsr) return this.usersCsr;
    const { offsets, values } = this.operands;
    const n = this.instruction.count;
    const count = new Uint32Array(n + 1);
    const last = new Int32Array(n).fill(-1);
    for (let i = 0; i < n; i++) {
      for (let e = offsets[i]; e < offsets[i + 1]; e++) {
        const o = values[e];
        if (last[o] !== i) {
          last[o] = i;
          count[o + 1]++;
        }
      }
    }
    for (let i = 0; i < n; i++) count[i + 1] += count[i];
    const at = count.slice();
    const out = new Uint32Array(count[n]);
    last.fill(-1);
    for (let i = 0; i < n; i++) {
      for (let e = offsets[i]; e < offsets[i + 1]; e++) {
        const o = values[e];
        if (last[o] !== i) {
          last[o] = i;
          out[at[o]++] = i;
        }
      }
    }
    this.usersCsr = { offsets: count, values: out };
    return this.usersCsr;
  }
}

/** Throws BadBlock for anything but a View; what it returns conforms to its declaration. */
export async function decodeView(gz: Uint8Array): Promise<ViewModel> {
  return readView(await gunzip(gz, VIEW_MAGIC));
}

/** The same for an inflated block. */
export function readView(raw: Uint8Array): ViewModel {
  const block = decodeBlock<ViewHeader>(raw, VIEW_MAGIC, VIEW_VERSION);
  const model = new ViewModel(block);
  checkView(block);
  return model;
}

/** Throws BadBlock for any other block; `ViewModel.extend` checks it against its View. */
export async function decodeAnalyses(gz: Uint8Array): Promise<Block<AnalysesHeader>> {
  const raw = await gunzip(gz, ANALYSES_MAGIC);
  return decodeBlock<AnalysesHeader>(raw, ANALYSES_MAGIC, VIEW_VERSION);
}

/** HLO text with the byte span of each instruction's line, and attributes split by Python. */
export class TextModel {
  readonly bytes: Uint8Array;
  readonly strings: StringTable;
  readonly instructionBegin: Uint32Array;
  readonly instructionEnd: Uint32Array;
  readonly computationBegin: Uint32Array;
  readonly computationEnd: Uint32Array;
  private attributes: Csr;
  private values: Uint32Array;
  private decoder = new TextDecoder();

  constructor(block: Block<{ columns: ViewHeader["columns"]; version: number }>) {
    const c = <T extends Column>(name: string): T => columnOf<T>(block.columns, name);
    this.bytes = c("text.bytes");
    this.strings = stringsOf(block);
    this.instructionBegin = c("line.instruction_begin");
    this.instructionEnd = c("line.instruction_end");
    this.computationBegin = c("line.computation_begin");
    this.computationEnd = c("line.computation_end");
    this.attributes = { offsets: c("attribute.offsets"), values: c("attribute.key") };
    this.values = c("attribute.value");
  }
  slice(begin: number, end: number): string {
    return plain(this.decoder.decode(this.bytes.subarray(begin, end)));
  }
  /** The instruction's own line, or "" when it has none. */
  instruction(i: number): string {
    const begin = this.instructionBegin[i];
    return begin === 0xffffffff ? "" : this.slice(begin, this.instructionEnd[i]);
  }
  attributesOf(i: number): [key: string, value: string][] {
    const out: [string, string][] = [];
    for (let e = this.attributes.offsets[i]; e < this.attributes.offsets[i + 1]; e++) {
      out.push([this.strings.get(this.attributes.values[e]), this.strings.get(this.values[e])]);
    }
    return out;
  }
}

/** Throws BadBlock for anything but a text block. */
export async function decodeText(gz: Uint8Array): Promise<TextModel> {
  const raw = await gunzip(gz, TEXT_MAGIC);
  const block = decodeBlock<{ columns: ViewHeader["columns"]; version: number }>(
    raw,
    TEXT_MAGIC,
    VIEW_VERSION,
  );
  const model = new TextModel(block);
  checkText(block);
  return model;
}
