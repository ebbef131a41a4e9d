/** Views made here, column by column, without Python: small, random and very large modules. */
import type { Column } from "../../js/base/decode.ts";
import { ViewModel } from "../../js/base/model.ts";
import { Flag, type GroupKind, VIEW_VERSION, type ViewHeader } from "../../js/view.ts";

export const FAMILIES = [
  "other",
  "matmul",
  "collective",
  "elementwise",
  "control_flow",
  "parameter",
];
const KINDS: GroupKind[] = [
  "module",
  "entry",
  "scope",
  "fusion",
  "body",
  "condition",
  "branch",
  "call",
  "reducer",
  "component",
  "section",
  "unreachable",
];

export interface InstructionSpec {
  name: string;
  opcode: string;
  label?: string;
  code?: string;
  group: number;
  operands?: number[];
  flags?: number;
  family?: string;
  computation?: number;
  calls?: number[];
  bytes?: number;
  element?: number;
  shape?: string;
}
export interface GroupSpec {
  parent: number;
  kind: GroupKind;
  label: string;
  owner?: number;
  computation?: number;
  /** Share of the work. */
  worth?: number;
  /** 1 for a pass forward, 2 for one back. */
  direction?: number;
  turn?: number;
  /** Of which it is one call of several. */
  function?: string;
}
export interface ModuleSpec {
  instructions: InstructionSpec[];
  groups: GroupSpec[];
  computations?: { name: string; root: number; group: number }[];
  folds?: { parent: number; label: string; members: number[] }[];
}

/** The View of a module; the instructions of each computation must be contiguous and in order. */
export function buildModel(spec: ModuleSpec): ViewModel {
  const texts = [""];
  const ids = new Map([["", 0]]);
  const id = (text: string): number => {
    let found = ids.get(text);
    if (found === undefined) {
      found = texts.length;
      texts.push(text);
      ids.set(text, found);
    }
    return found;
  };
  const { instructions, groups } = spec;
  const folds = spec.folds ?? [];
  const computations = spec.computations ?? [{ name: "main", root: -1, group: 1 }];
  const opcodes = [...new Set(instructions.map((i) => i.opcode))];
  const opcodeAt = new Map(opcodes.map((o, k) => [o, k]));
  const columns = new Map<string, Column>();
  const u32 = (name: string, values: number[]): void => {
    columns.set(name, Uint32Array.from(values));
  };
  const i32 = (name: string, values: number[]): void => {
    columns.set(name, Int32Array.from(values));
  };
  const csr = (name: string, lists: number[][], values = "values"): void => {
    const offsets = [0];
    for (const list of lists) offsets.push(offsets[offsets.length - 1] + list.length);
    u32(`${name}.offsets`, offsets);
    u32(`${name}.${values}`, lists.flat());
  };
  u32(
    "instruction.name",
    instructions.map((i) => id(i.name)),
  );
  u32(
    "instruction.label",
    instructions.map((i) => id(i.label ?? i.opcode)),
  );
  u32(
    "instruction.code",
    instructions.map((i) => id(i.code ?? "")),
  );
  columns.set(
    "instruction.opcode",
    Uint16Array.from(instructions, (i) => opcodeAt.get(i.opcode) as number),
  );
  columns.set(
    "instruction.family",
    Uint8Array.from(instructions, (i) => Math.max(0, FAMILIES.indexOf(i.family ?? "other"))),
  );
  columns.set(
    "instruction.flags",
    Uint16Array.from(instructions, (i) => i.flags ?? 0),
  );
  for (const name of ["shape", "dense_shape"]) {
    u32(
      `instruction.${name}`,
      instructions.map((i) => id(i.shape ?? "f32[8,128]")),
    );
  }
  columns.set(
    "instruction.bytes",
    Float64Array.from(instructions, (i) => i.bytes ?? 4096),
  );
  columns.set(
    "instruction.element",
    Int32Array.from(instructions, (i) => i.element ?? -1),
  );
  u32(
    "instruction.computation",
    instructions.map((i) => i.computation ?? 0),
  );
  u32(
    "instruction.group",
    instructions.map((i) => i.group),
  );
  u32(
    "instruction.op_name",
    instructions.map(() => 0),
  );
  i32(
    "instruction.frame",
    instructions.map(() => -1),
  );
  csr(
    "operand",
    instructions.map((i) => i.operands ?? []),
  );
  csr(
    "control",
    instructions.map(() => []),
  );
  csr(
    "called",
    instructions.map((i) => i.calls ?? []),
  );
  columns.set("called.role", new Uint8Array((columns.get("called.values") as Uint32Array).length));
  u32(
    "computation.name",
    computations.map((c) => id(c.name)),
  );
  const firsts = computations.map((_, c) =>
    Math.max(
      0,
      instructions.findIndex((i) => (i.computation ?? 0) === c),
    ),
  );
  const sizes = new Array<number>(computations.length).fill(0);
  for (const i of instructions) sizes[i.computation ?? 0]++;
  u32("computation.first", firsts);
  u32("computation.size", sizes);
  i32(
    "computation.root",
    computations.map((c) => c.root),
  );
  i32(
    "computation.group",
    computations.map((c) => c.group),
  );
  const size = new Array<number>(groups.length).fill(0);
  const order = new Array<number>(groups.length).fill(instructions.length);
  instructions.forEach((instruction, i) => {
    for (let g = instruction.group; g >= 0; g = groups[g].parent) {
      size[g]++;
      order[g] = Math.min(order[g], i);
    }
  });
  i32(
    "group.parent",
    groups.map((g) => g.parent),
  );
  columns.set(
    "group.kind",
    Uint8Array.from(groups, (g) => KINDS.indexOf(g.kind)),
  );
  u32(
    "group.label",
    groups.map((g) => id(g.label)),
  );
  i32(
    "group.owner",
    groups.map((g) => g.owner ?? -1),
  );
  i32(
    "group.computation",
    groups.map((g) => g.computation ?? -1),
  );
  u32("group.size", size);
  u32("group.order", order);
  columns.set(
    "group.worth",
    Float32Array.from(groups, (g) => g.worth ?? 0),
  );
  columns.set(
    "group.direction",
    Uint8Array.from(groups, (g) => g.direction ?? 0),
  );
  u32(
    "group.turn",
    groups.map((g) => g.turn ?? 0),
  );
  u32(
    "group.function",
    groups.map((g) => id(g.function ?? "")),
  );
  u32(
    "group.class",
    groups.map((_, g) => g),
  );
  const foldOf = new Array<number>(groups.length).fill(-1);
  folds.forEach((fold, f) => {
    for (const g of fold.members) foldOf[g] = f;
  });
  i32("group.fold", foldOf);
  u32(
    "fold.parent",
    folds.map((f) => f.parent),
  );
  u32(
    "fold.label",
    folds.map((f) => id(f.label)),
  );
  csr(
    "fold",
    folds.map((f) => f.members),
    "members",
  );
  u32("frame.file", []);
  u32("frame.function", []);
  u32("frame.line", []);
  i32("frame.parent", []);
  const encoder = new TextEncoder();
  const encoded = texts.map((t) => encoder.encode(t));
  const offsets = [0];
  for (const bytes of encoded) offsets.push(offsets[offsets.length - 1] + bytes.length);
  const all = new Uint8Array(offsets[offsets.length - 1]);
  encoded.forEach((bytes, k) => {
    all.set(bytes, offsets[k]);
  });
  columns.set("strings.bytes", all);
  u32("strings.offsets", offsets);
  const header = {
    version: VIEW_VERSION,
    columns: {},
    opcodes,
    families: FAMILIES.map((f) => ({
      id: f,
      label: f,
      landmark: f === "matmul" || f === "collective",
    })),
    groupKinds: KINDS,
    callRoles: ["calls"],
    counts: {
      instructions: instructions.length,
      computations: computations.length,
      groups: groups.length,
      folds: folds.length,
    },
    title: "made by a test",
    subtitle: "",
    dialect: "hlo",
    isScheduled: true,
    summary: {},
    warnings: [],
    extras: {},
  } as unknown as ViewHeader;
  return new ViewModel({ header, columns });
}

/**
 * Forward, loss and backward of a transformer: layers fold in both directions, and every backward
 * layer uses what its forward layer kept.
 */
export function transformer(layers: number, opsPerLayer: number): ModuleSpec {
  const groups: GroupSpec[] = [
    { parent: -1, kind: "module", label: "jit_step" },
    { parent: 0, kind: "entry", label: "main" },
    { parent: 1, kind: "scope", label: "forward" },
    { parent: 1, kind: "scope", label: "backward" },
    { parent: 1, kind: "scope", label: "adam" },
  ];
  const instructions: InstructionSpec[] = [];
  const add = (i: InstructionSpec): number => instructions.push(i) - 1;
  const weights: number[] = [];
  for (let k = 0; k < layers; k++) {
    weights.push(
      add({
        name: `w${k}`,
        opcode: "parameter",
        group: 1,
        flags: Flag.Parameter,
        family: "parameter",
      }),
    );
  }
  let x = add({ name: "x", opcode: "gather", group: 2 });
  const kept: number[] = [];
  const run = (parent: number, k: number, from: number, extra: number[]): number => {
    const g = groups.push({ parent, kind: "scope", label: `layer_${k}` }) - 1;
    let last = from;
    let skip = from;
    for (let op = 0; op < opsPerLayer; op++) {
      const operands = [last];
      if (op % 4 === 0) operands.push(weights[k]);
      if (op % 5 === 4) operands.push(skip);
      if (op === 0) operands.push(...extra);
      last = add({
        name: `op${instructions.length}`,
        opcode: op % 4 === 0 ? "dot" : op % 7 === 6 ? "all-reduce" : "add",
        family: op % 4 === 0 ? "matmul" : op % 7 === 6 ? "collective" : "elementwise",
        flags: op % 4 === 0 ? Flag.Landmark : 0,
        group: g,
        operands,
      });
      if (op % 5 === 4) skip = last;
    }
    return last;
  };
  const forward: number[] = [];
  for (let k = 0; k < layers; k++) {
    forward.push(groups.length);
    x = run(2, k, x, []);
    kept.push(x);
  }
  let grad = add({ name: "loss", opcode: "reduce", group: 1, operands: [x] });
  const backward: number[] = [];
  const gradients: number[] = [];
  for (let k = layers - 1; k >= 0; k--) {
    backward.push(groups.length);
    grad = run(3, k, grad, [kept[k]]);
    gradients.push(grad);
  }
  const outputs = gradients.map((g, k) =>
    add({ name: `new${k}`, opcode: "add", group: 4, operands: [g, weights[layers - 1 - k]] }),
  );
  const root = add({
    name: "root",
    opcode: "tuple",
    group: 1,
    operands: outputs,
    flags: Flag.Root | Flag.Plumbing,
  });
  const folds =
    layers < 2
      ? []
      : [
          { parent: 2, label: `layer_[0..${layers - 1}]`, members: forward },
          { parent: 3, label: `layer_[${layers - 1}..0]`, members: backward },
        ];
  return { instructions, groups, folds, computations: [{ name: "main", root, group: 1 }] };
}

/** A while loop with a body, a condition and a fusion in the body. */
export function loop(): ModuleSpec {
  const groups: GroupSpec[] = [
    { parent: -1, kind: "module", label: "jit_loop" },
    { parent: 0, kind: "entry", label: "main" },
    { parent: 1, kind: "body", label: "body", owner: 1, computation: 1 },
    { parent: 1, kind: "condition", label: "condition", owner: 1, computation: 2 },
    { parent: 2, kind: "fusion", label: "fused", owner: 4, computation: 3 },
  ];
  const p = { flags: Flag.Parameter, family: "parameter", opcode: "parameter" };
  const instructions: InstructionSpec[] = [
    { name: "x", group: 1, ...p },
    {
      name: "while",
      opcode: "while",
      group: 1,
      operands: [0],
      calls: [1, 2],
      family: "control_flow",
      flags: Flag.Landmark,
    },
    { name: "out", opcode: "negate", group: 1, operands: [1], flags: Flag.Output },
    { name: "bx", group: 2, computation: 1, ...p },
    { name: "fusion", opcode: "fusion", group: 2, computation: 1, operands: [3], calls: [3] },
    { name: "dot", opcode: "dot", group: 2, computation: 1, operands: [4, 3], family: "matmul" },
    { name: "cx", group: 3, computation: 2, ...p },
    { name: "less", opcode: "compare", group: 3, computation: 2, operands: [6] },
    { name: "fx", group: 4, computation: 3, ...p },
    { name: "exp", opcode: "exponential", group: 4, computation: 3, operands: [8] },
    { name: "tanh", opcode: "tanh", group: 4, computation: 3, operands: [9] },
  ];
  return {
    instructions,
    groups,
    computations: [
      { name: "main", root: 2, group: 1 },
      { name: "body", root: 5, group: 2 },
      { name: "cond", root: 7, group: 3 },
      { name: "fused", root: 10, group: 4 },
    ],
  };
}

/** Random nesting and random data flow, from numbers that a property test can shrink. */
export function randomModule(n: number, groupCount: number, next: () => number): ModuleSpec {
  const groups: GroupSpec[] = [
    { parent: -1, kind: "module", label: "jit_random" },
    { parent: 0, kind: "entry", label: "main" },
  ];
  for (let g = 0; g < groupCount; g++) {
    groups.push({
      parent: 1 + Math.floor(next() * (groups.length - 1)),
      kind: "scope",
      label: `scope_${g}`,
    });
  }
  const instructions: InstructionSpec[] = [];
  for (let i = 0; i < n; i++) {
    const operands: number[] = [];
    const count = i === 0 ? 0 : Math.floor(next() * 4);
    for (let k = 0; k < count; k++) {
      const reach = next() < 0.8 ? Math.min(i, 12) : i;
      operands.push(i - 1 - Math.floor(next() * reach));
    }
    const roll = next();
    const flags =
      roll < 0.1 ? Flag.Parameter : roll < 0.2 ? Flag.Plumbing : roll < 0.25 ? Flag.Landmark : 0;
    instructions.push({
      name: `i${i}`,
      opcode: ["add", "dot", "tuple", "exponential-minus-one"][Math.floor(next() * 4)],
      family: FAMILIES[Math.floor(next() * 4)],
      group: 1 + Math.floor(next() * (groups.length - 1)),
      operands: flags === Flag.Parameter ? [] : operands,
      flags,
      bytes: 1 + Math.floor(next() * 1e6),
    });
  }
  return { instructions, groups };
}

/** A small seeded random number generator, for reproducible fixtures. */
export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  };
}

/** The groups of a module with one scope, "layer": group 2, within ENTRY, group 1. */
export const ONE_LAYER: GroupSpec[] = [
  { parent: -1, kind: "module", label: "m" },
  { parent: 0, kind: "entry", label: "main", computation: 0 },
  { parent: 1, kind: "scope", label: "layer" },
];
