/**
 * Search over names, opcodes, scopes, shapes, source lines and figures.
 *
 * Fast because each text is in the string table once: a word is searched for once in the whole
 * table, joined and lowercased, which marks string ids; instructions then only test marks.
 *
 *     opcode:dot shape:f32[8 scope:mlp file:train.py:31 line:8 bytes>1GiB -scope:loss /dot\.\d/ word
 *
 * All terms must match; a word without a prefix may match any field, the boxes around an instruction
 * ("attention", "layer_[0..23]", "optimizer · adamw"), its Python functions, its family and its kind
 * of collective: what the screen says is found. `opcode:` with an opcode of
 * the module matches exactly. `-` before a term with a prefix, or `!` before any term, excludes
 * its matches.
 */
import type { ViewModel } from "../../base/model.ts";
import type { Selection } from "../../view.ts";
import { type Amount, amountOf } from "../cost/amounts.ts";
import { type Comparison, parseComparison } from "./comparison.ts";

export const FIELDS = ["name", "opcode", "scope", "shape", "file", "line"] as const;
export type Field = (typeof FIELDS)[number];

export interface Term {
  field: Field | null;
  text: string; // lowercase; a regular expression as written
  not?: boolean;
  pattern?: RegExp | null; // null: not a valid regular expression, so nothing matches
  amount?: Comparison;
}

const ALIASES: Record<string, Field> = { op: "opcode", source: "file", op_name: "scope" };

/** Splits a query into terms; quotes keep spaces: `scope:"layer 1"`. */
export function parseQuery(query: string): Term[] {
  const terms: Term[] = [];
  const parts = query.matchAll(
    /([!-]?)(?:(\w+):)?(?:\/((?:[^/\\]|\\.)+)\/(?=\s|$)|"([^"]*)"?|(\S+))/g,
  );
  for (const [whole, sign, prefix, pattern, quoted, bare] of parts) {
    const key = prefix?.toLowerCase();
    const field = FIELDS.find((f) => f === key) ?? (key ? ALIASES[key] : undefined) ?? null;
    // "-start" is a word that people search for; only "-scope:loss" and "!start" exclude.
    const not = sign === "!" || (sign === "-" && field !== null);
    const amount = bare && !key ? parseComparison(bare) : null;
    if (amount) {
      terms.push({ field: null, text: bare.toLowerCase(), amount, ...(not && { not }) });
      continue;
    }
    if (pattern !== undefined) {
      terms.push({ field, text: pattern, pattern: expression(pattern), ...(not && { not }) });
      continue;
    }
    let text = (quoted ?? bare).toLowerCase();
    // Not one of our prefixes, so the colon belongs to the word.
    if (key && !field) text = `${key}:${text}`;
    if (sign === "-" && !not) text = whole.toLowerCase();
    if (field === null || field === "name") text = text.replace(/^%/, "");
    if (text) terms.push({ field, text, ...(not && { not }) });
  }
  return terms;
}

function expression(source: string): RegExp | null {
  try {
    return new RegExp(source, "iu");
  } catch {
    return null;
  }
}

/** All strings of the table as one lowercase string, and where each begins. */
function joined(model: ViewModel): { text: string; begin: Uint32Array } {
  const { strings } = model;
  const begin = new Uint32Array(strings.length + 1);
  const parts: string[] = [];
  let at = 0;
  for (let id = 0; id < strings.length; id++) {
    const part = strings.get(id).toLowerCase();
    begin[id] = at;
    at += part.length;
    parts.push(part);
  }
  begin[strings.length] = at;
  return { text: parts.join(""), begin };
}

/** 2 for frames that pass the test or have a caller that does, else 1: a term matches the whole stack. */
function frameMarks(model: ViewModel, test: (frame: number) => boolean): Uint8Array {
  const { count, parent } = model.frame;
  const marks = new Uint8Array(count); // 0 not tested yet, 1 no, 2 yes
  for (let f = 0; f < count; f++) {
    const chain: number[] = [];
    let at = f;
    while (at >= 0 && marks[at] === 0 && chain.length <= count) {
      marks[at] = 1;
      chain.push(at);
      at = parent[at];
    }
    let yes = at >= 0 && marks[at] === 2;
    for (let k = chain.length - 1; k >= 0; k--) {
      yes = yes || test(chain[k]);
      marks[chain[k]] = yes ? 2 : 1;
    }
  }
  return marks;
}

export class Search {
  query = "";
  /** Instruction indices, best first. */
  results: Uint32Array = new Uint32Array(0);
  /** Order of `results`: best match first, or by an amount, largest first. */
  order: "match" | Amount = "match";
  /** Position in `results`, -1 before the first step. */
  current = -1;
  /** Groups and folds whose own label matches, exact ones first, then large ones. */
  boxes: readonly Selection[] = [];
  private table: { text: string; begin: Uint32Array } | null = null;
  private listeners = new Set<() => void>();

  constructor(private model: ViewModel) {}

  on(listener: () => void, signal: AbortSignal): void {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener), { once: true });
  }
  private emit(): void {
    for (const listener of [...this.listeners]) listener();
  }
  set(query: string): void {
    this.query = query;
    this.results = this.sorted(this.find(query));
    this.boxes = this.labelled(query);
    this.current = -1;
    this.emit();
  }
  sortBy(order: "match" | Amount): void {
    this.order = order;
    this.set(this.query);
  }
  private sorted(results: Uint32Array): Uint32Array {
    const values = this.order === "match" ? null : amountOf(this.model, this.order);
    if (!values) return results;
    const key = (i: number) => (Number.isNaN(values[i]) ? -1 : values[i]);
    return results.slice().sort((a, b) => key(b) - key(a) || a - b);
  }
  /** Moves to the next or previous result; returns its instruction, or -1 if there is none. */
  step(by: 1 | -1): number {
    const n = this.results.length;
    if (!n) return -1;
    this.current = this.current < 0 ? (by > 0 ? 0 : n - 1) : (this.current + by + n) % n;
    this.emit();
    return this.results[this.current];
  }
  go(position: number): void {
    this.current = position;
    this.emit();
  }

  /** Ids of strings that contain `needle`. */
  private marks(needle: string): Uint8Array {
    this.table ??= joined(this.model);
    const { text, begin } = this.table;
    const hit = new Uint8Array(this.model.strings.length);
    let id = 0;
    let at = text.indexOf(needle);
    while (at >= 0) {
      // Strings follow each other without separators: find the one that contains `at`.
      let low = id;
      let high = hit.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (begin[middle] <= at) low = middle;
        else high = middle - 1;
      }
      id = low;
      if (at + needle.length <= begin[id + 1]) {
        hit[id] = 1;
        at = text.indexOf(needle, begin[id + 1]);
      } else at = text.indexOf(needle, at + 1);
    }
    return hit;
  }

  /** Ids of strings that a regular expression matches. */
  private matched(pattern: RegExp | null): Uint8Array {
    const { strings } = this.model;
    const hit = new Uint8Array(strings.length);
    if (pattern)
      for (let id = 0; id < hit.length; id++) hit[id] = pattern.test(strings.get(id)) ? 1 : 0;
    return hit;
  }

  private matcher(term: Term): (i: number) => boolean {
    const test = this.positive(term);
    return term.not ? (i) => !test(i) : test;
  }

  private positive({ field, text, pattern, amount }: Term): (i: number) => boolean {
    const { instruction: t, header, frame } = this.model;
    if (amount) {
      const values = amountOf(this.model, amount.of);
      return values ? (i) => amount.holds(values[i]) : () => false;
    }
    if (field === "line") {
      const wanted = Number(text);
      const stacks = frameMarks(this.model, (f) => frame.line[f] === wanted);
      return (i) => t.frame[i] >= 0 && stacks[t.frame[i]] === 2;
    }
    const hit = pattern === undefined ? this.marks(text) : this.matched(pattern);
    const exact = pattern === undefined && field === "opcode" && header.opcodes.includes(text);
    const ops = Uint8Array.from(header.opcodes, (op) =>
      (exact ? op === text : pattern === undefined ? op.includes(text) : pattern?.test(op)) ? 1 : 0,
    );
    const at = /^(.+):(\d+)$/.exec(text);
    const files = at ? this.marks(at[1]) : hit;
    const line = at ? Number(at[2]) : -1;
    const frames = frameMarks(this.model, (f) =>
      line >= 0 ? frame.line[f] === line && files[frame.file[f]] === 1 : hit[frame.file[f]] === 1,
    );
    const file = (i: number) => t.frame[i] >= 0 && frames[t.frame[i]] === 2;
    switch (field) {
      case "name":
        return (i) => (hit[t.name[i]] | hit[t.label[i]] | hit[t.code[i]]) === 1;
      case "opcode":
        return (i) => ops[t.opcode[i]] === 1;
      case "scope": {
        const inside = this.insideOf(hit);
        return (i) => hit[t.opName[i]] === 1 || inside[t.group[i]] === 1;
      }
      case "shape":
        return (i) => (hit[t.denseShape[i]] | hit[t.shape[i]]) === 1;
      case "file":
        return file;
      default: {
        const inside = this.insideOf(hit);
        const kinds = this.kinds(hit, text, pattern);
        const called = frameMarks(this.model, (f) => hit[frame.function[f]] === 1);
        return (i) =>
          inside[t.group[i]] === 1 ||
          kinds(i) ||
          (t.frame[i] >= 0 && called[t.frame[i]] === 2) ||
          (hit[t.name[i]] |
            hit[t.label[i]] |
            hit[t.code[i]] |
            hit[t.opName[i]] |
            hit[t.denseShape[i]] |
            ops[t.opcode[i]]) ===
            1 ||
          file(i);
      }
    }
  }

  /** 1 for groups whose label, or that of a group or fold around them, is one of the strings. */
  private insideOf(hit: Uint8Array): Uint8Array {
    const { count, parent, label, fold } = this.model.group;
    const folds = this.model.fold.label;
    const out = new Uint8Array(count);
    // Parents come before their children; the first group is the module.
    for (let g = 1; g < count; g++) {
      const named = hit[label[g]] === 1 || (fold[g] >= 0 && hit[folds[fold[g]]] === 1);
      out[g] = named || out[parent[g]] === 1 ? 1 : 0;
    }
    return out;
  }
  /** Tests for the family ("matmul", "data movement") and the kind and axes of a collective. */
  private kinds(
    hit: Uint8Array,
    text: string,
    pattern: RegExp | null | undefined,
  ): (i: number) => boolean {
    const { model } = this;
    const families = Uint8Array.from(model.header.families, ({ label }) =>
      (pattern === undefined ? label.toLowerCase().includes(text) : pattern?.test(label)) ? 1 : 0,
    );
    const ofCollective = new Set<number>();
    const column = (name: string) => model.optional<Uint32Array>(`collective.${name}`);
    const [kind, axes, at] = [column("kind"), column("axes"), column("instruction")];
    const offsets = model.optional<Uint32Array>("collective_member.offsets");
    const members = model.optional<Uint32Array>("collective_member.values");
    for (let k = 0; kind && axes && at && k < kind.length; k++) {
      if (!hit[kind[k]] && !hit[axes[k]]) continue;
      ofCollective.add(at[k]);
      for (let m = offsets?.[k] ?? 0; m < (offsets?.[k + 1] ?? 0); m++) {
        if (members) ofCollective.add(members[m]);
      }
    }
    return (i) => families[model.instruction.family[i]] === 1 || ofCollective.has(i);
  }
  /** Boxes that the words name: each word is in the label, or in that of a box around it. */
  private labelled(query: string): Selection[] {
    const { group, fold, strings } = this.model;
    const terms = parseQuery(query).filter(
      ({ not, field, amount }) => !not && !amount && (field === null || field === "scope"),
    );
    if (!terms.length || terms.length < parseQuery(query).length) return [];
    const hits = terms.map(({ text, pattern }) =>
      pattern === undefined ? this.marks(text) : this.matched(pattern),
    );
    const around = hits.map((hit) => this.insideOf(hit));
    const found: { selection: Selection; label: string; size: number }[] = [];
    const folds = new Set<number>();
    for (let g = 1; g < group.count; g++) {
      if (!around.every((inside) => inside[g] === 1)) continue;
      const own = (id: number) => hits.some((hit) => hit[id] === 1);
      const f = group.fold[g];
      if (f >= 0 && own(fold.label[f])) {
        if (folds.has(f)) continue;
        folds.add(f);
        const size = group.size[g] * (fold.members.offsets[f + 1] - fold.members.offsets[f]);
        const selection: Selection = { kind: "fold", index: f };
        found.push({ selection, label: strings.get(fold.label[f]), size });
      } else if (own(group.label[g])) {
        const selection: Selection = { kind: "group", index: g };
        found.push({ selection, label: strings.get(group.label[g]), size: group.size[g] });
      }
    }
    const exact = ({ label }: { label: string }) =>
      Number(label.toLowerCase() === query.trim().toLowerCase());
    found.sort((a, b) => exact(b) - exact(a) || b.size - a.size);
    return found.map(({ selection }) => selection);
  }

  /** Matching instructions: exact names, then matching names, then the rest, in program order. */
  find(query: string): Uint32Array {
    const terms = parseQuery(query);
    if (!terms.length) return new Uint32Array(0);
    const tests = terms.map((term) => this.matcher(term));
    const { count, name } = this.model.instruction;
    const words = terms.filter(
      (t) => !t.not && !t.amount && !t.pattern && (t.field === null || t.field === "name"),
    );
    const inName = words.length ? this.marks(words[0].text) : null;
    const exact: number[] = [];
    const named: number[] = [];
    const rest: number[] = [];
    for (let i = 0; i < count; i++) {
      let ok = true;
      for (const test of tests) ok = ok && test(i);
      if (!ok) continue;
      if (!inName?.[name[i]]) rest.push(i);
      else if (this.model.name(i).toLowerCase() === words[0].text) exact.push(i);
      else named.push(i);
    }
    return Uint32Array.from(exact.concat(named, rest));
  }
}
