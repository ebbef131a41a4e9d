import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { paintInstructions } from "../../js/draw/coloring.ts";
import { Engine } from "../../js/draw/engine.ts";
import { nextItem, pathBetween } from "../../js/draw/input/walk.ts";
import type { PaintState } from "../../js/draw/paint/paint-state.ts";
import { paintScene } from "../../js/draw/paint/painter.ts";
import { escapeXml, SvgSurface } from "../../js/draw/paint/svg-surface.ts";
import { CHIP_HEIGHT, SUB_SIZE, TextMetrics } from "../../js/graph/metrics.ts";
import { LayoutCache, layoutPicture } from "../../js/graph/picture.ts";
import { ItemWriter } from "../../js/graph/project/items.ts";
import { ItemKind } from "../../js/graph/project/projection.ts";
import { FamilyCounts, nodeLabel } from "../../js/graph/project/words.ts";
import { itemLooks } from "../../js/scene/looks.ts";
import type { Scene } from "../../js/scene/scene.ts";
import type { RectStyle, Surface, TextStyle } from "../../js/scene/surface.ts";
import { DARK, type GraphTheme, LIGHT } from "../../js/theme/graph.ts";
import { Flag } from "../../js/view.ts";
import {
  buildModel,
  generator,
  loop,
  type ModuleSpec,
  randomModule,
  transformer,
} from "./fixtures.ts";

const METRICS = new TextMetrics();

function engineOf(spec: ModuleSpec, width = 1000, height = 620): Engine {
  return new Engine(buildModel(spec), METRICS, width, height);
}

function state(engine: Engine, scene: Scene, theme: GraphTheme = LIGHT): PaintState {
  const { colors } = paintInstructions(engine.model, null, theme);
  const { x, y, w, h, width, height } = scene.picture;
  return {
    theme,
    metrics: METRICS,
    colors,
    looks: itemLooks(scene, colors, (i) => engine.flow.hidden[i] === 0),
    scale: 1,
    view: { x: 0, y: 0, w: width, h: height },
    lit: null,
    x,
    y,
    w,
    h,
    all: false,
    edgeAlpha: 1,
  };
}

/** Two passes: a model of nine parts with most of the work, and a head of three. */
function passes(): ModuleSpec {
  const groups: ModuleSpec["groups"] = [
    { parent: -1, kind: "module", label: "module", worth: 1 },
    { parent: 0, kind: "entry", label: "main", worth: 1 },
    { parent: 1, kind: "scope", label: "forward", worth: 0.4 },
    { parent: 1, kind: "scope", label: "backward", worth: 0.6 },
    { parent: 2, kind: "scope", label: "model", worth: 0.3 },
    { parent: 3, kind: "scope", label: "model grad", worth: 0.6 },
    { parent: 2, kind: "scope", label: "head", worth: 0.1 },
  ];
  const instructions: ModuleSpec["instructions"] = [];
  for (const [group, count] of [
    [4, 9],
    [6, 3],
    [5, 9],
  ]) {
    for (let k = 0; k < count; k++) {
      const operands = instructions.length ? [instructions.length - 1] : [];
      instructions.push({ name: `i${instructions.length}`, opcode: "tanh", group, operands });
    }
  }
  return { instructions, groups };
}

/** Records what is drawn. */
class Recorder implements Surface {
  texts: { text: string; left: number; right: number; y: number; style: TextStyle }[] = [];
  rects: { x: number; y: number; w: number; h: number; style: RectStyle }[] = [];
  routes = 0;
  rect(x: number, y: number, w: number, h: number, style: RectStyle): void {
    this.rects.push({ x, y, w, h, style });
  }
  text(text: string, x: number, y: number, style: TextStyle): void {
    const width = METRICS.width(text, style.size, style.bold);
    const left = style.align === "center" ? x - width / 2 : style.align === "right" ? x - width : x;
    this.texts.push({ text, left, right: left + width, y, style });
  }
  route(): void {
    this.routes++;
  }
}

const spice = (spec: ModuleSpec): ModuleSpec => {
  // Difficult names: long ones, and in other alphabets.
  spec.instructions.forEach((i, k) => {
    if (k % 3 === 0) i.opcode = `an-unusually-long-operation-name-that-goes-on-and-on-${k}`;
    if (k % 7 === 0) i.opcode = `操作の名前は長いこともある_${k}`;
  });
  spec.groups.forEach((g, k) => {
    if (k % 3 === 2) g.label = `a_scope_with_a_long_name/that_has_parts/and_more_parts_${k}`;
  });
  return spec;
};

describe("drawing", () => {
  test("no text leaves its box and no two texts overlap", () => {
    fc.assert(
      fc.property(fc.nat(100000), fc.integer({ min: 1, max: 120 }), (seed, n) => {
        // In a low pane chips stand beside the text.
        const height = seed % 2 ? 620 : 140;
        const engine = engineOf(spice(randomModule(n, 8, generator(seed))), 1000, height);
        engine.openDefault();
        engine.openAll(500);
        const scene = engine.rebuild();
        const surface = new Recorder();
        paintScene(surface, scene, state(engine, scene));
        const { x, w, y, h } = scene.picture;
        for (const t of surface.texts) {
          const item = scene.itemAt((t.left + t.right) / 2, t.y);
          expect(item).toBeGreaterThan(0);
          expect(t.left).toBeGreaterThanOrEqual(x[item] - 0.01);
          expect(t.right).toBeLessThanOrEqual(x[item] + w[item] + 0.01);
          expect(t.y).toBeLessThan(y[item] + h[item]);
        }
        const sorted = surface.texts.sort((a, b) => a.y - b.y);
        for (let k = 0; k < sorted.length; k++) {
          for (let j = k + 1; j < sorted.length && sorted[j].y < sorted[k].y + 9; j++) {
            const a = sorted[k];
            const b = sorted[j];
            const apart = a.right <= b.left + 0.5 || b.right <= a.left + 0.5;
            if (!apart) expect.fail(`"${a.text}" and "${b.text}" overlap`);
          }
        }
      }),
      { numRuns: 60 },
    );
  });

  test("far zoom draws rows instead of boxes, and readable titles", () => {
    const engine = engineOf(transformer(60, 40));
    engine.openDefault();
    engine.openAll(100_000);
    const scene = engine.rebuild();
    const near = new Recorder();
    const s = state(engine, scene);
    paintScene(near, scene, s);
    const far = new Recorder();
    paintScene(far, scene, { ...s, scale: 0.045 });
    expect(scene.count).toBeGreaterThan(4000);
    expect(far.rects.length).toBeLessThan(near.rects.length / 2);
    expect(far.texts.length).toBeGreaterThan(0);
    for (const t of far.texts) expect(t.style.size * 0.045).toBeGreaterThanOrEqual(9.9);
    const plates = far.texts.map((t) => [t.left, t.right, t.y] as const);
    for (let k = 0; k < plates.length; k++) {
      for (let j = k + 1; j < plates.length; j++) {
        const apart =
          plates[k][1] <= plates[j][0] ||
          plates[j][1] <= plates[k][0] ||
          Math.abs(plates[k][2] - plates[j][2]) * 0.045 > 10;
        expect(apart).toBe(true);
      }
    }
  });

  test("SVG is well formed and names are never markup", () => {
    const spec = transformer(3, 6);
    spec.groups[2].label = '<img src=x onerror="alert(1)">';
    spec.instructions.forEach((i) => {
      i.opcode = `</svg><script>${i.opcode}</script>&'"\u0000\ud800`;
    });
    const engine = engineOf(spec);
    const scene = engine.openDefault();
    const surface = new SvgSurface();
    paintScene(surface, scene, state(engine, scene));
    const { width, height } = scene.picture;
    const svg = surface.document(width, height, LIGHT.font, LIGHT.background, "</title><script>");
    expect(svg).not.toMatch(/<script|<img|<\/svg>./i);
    expect(svg).not.toContain("\u0000");
    expect(svg.match(/<\w+[ >]/g)?.every((tag) => /^<(svg|title|rect|text|path)/.test(tag))).toBe(
      true,
    );
    // Outside tags there must be only text.
    expect(svg.replace(/<\/?[a-z]+(\s+[\w:-]+="[^"<>]*")*\s*\/?>/g, "")).not.toMatch(/[<>]/);
    expect(escapeXml("a<b>&\"'")).toBe("a&lt;b&gt;&amp;&quot;&#39;");
  });
});

describe("scene", () => {
  test("the pointer finds what is drawn under it", () => {
    const engine = engineOf(transformer(6, 12));
    engine.openDefault();
    engine.openAll(1000);
    const scene = engine.rebuild();
    const { x, y, w, h, projection, text } = scene.picture;
    for (let item = 1; item < scene.count; item++) {
      if (projection.kind[item] === ItemKind.Open) {
        expect(scene.itemAt(x[item] + w[item] / 2, y[item] + 2)).toBe(item);
        continue;
      }
      expect(scene.itemAt(x[item] + w[item] / 2, y[item] + h[item] / 2)).toBe(item);
      for (const chip of text[item].chips) {
        const found = scene.chipAt(
          item,
          x[item] + chip.x + chip.w / 2,
          y[item] + chip.y + 3,
          CHIP_HEIGHT,
        );
        expect(found).toBe(chip);
      }
    }
    expect(scene.itemAt(-50, -50)).toBe(-1);
  });

  test("the first picture fits common panes at a readable size", () => {
    for (const [w, h] of [
      [1200, 700],
      [900, 560],
      [640, 520],
    ]) {
      const scene = engineOf(transformer(24, 20), w, h).openDefault();
      expect((scene.picture.width * 10) / SUB_SIZE).toBeLessThanOrEqual(w);
      expect((scene.picture.height * 10) / SUB_SIZE).toBeLessThanOrEqual(h);
      expect(scene.count).toBeGreaterThan(4);
    }
  });

  test("a pass opens before the layers of another; the lighter of two not in place of the heavier", () => {
    const open = (w: number, h: number): string[] => {
      const engine = engineOf(passes(), w, h);
      const { projection } = engine.openDefault().picture;
      return [...projection.nodes]
        .filter((_, item) => item > 0 && projection.kind[item] === ItemKind.Open)
        .map((v) => nodeLabel(engine.tree, v));
    };
    expect(open(1200, 900)).toEqual(["forward", "backward", "model", "head"]);
    // Where the model does not fit, the head, which is lighter, stays closed as well.
    expect(open(300, 180)).toEqual(["forward"]);
  });

  test("what holds most of the work is opened where text of nine pixels shows it", () => {
    const open = (worth: number, height: number): boolean => {
      const groups: ModuleSpec["groups"] = [
        { parent: -1, kind: "module", label: "module", worth: 1 },
        { parent: 0, kind: "entry", label: "main", worth: 1 },
        { parent: 1, kind: "scope", label: "model", worth },
      ];
      const instructions = Array.from({ length: 24 }, (_, k) => ({
        name: `i${k}`,
        opcode: "tanh",
        group: k < 3 ? 1 : 2,
        operands: k > 0 ? [k - 1, ...(k > 5 ? [k - 4] : [])] : [],
      }));
      const { picture } = engineOf({ instructions, groups }, 600, height).openDefault();
      const scale = Math.min(600 / picture.width, height / picture.height);
      const shown = picture.projection.kind.includes(ItemKind.Open, 1);
      if (shown) expect(13 * scale).toBeGreaterThanOrEqual(worth < 0.4 ? 10 : 9);
      return shown;
    };
    const heights = Array.from({ length: 60 }, (_, k) => 100 + 12 * k);
    const most = heights.filter((h) => open(0.5, h));
    const less = heights.filter((h) => open(0.3, h));
    expect(less.length).toBeGreaterThan(0);
    expect(less.every((h) => most.includes(h))).toBe(true);
    expect(most.length).toBeGreaterThan(less.length);
  });

  test("a pass back is opened beside the open one forward only, however much heavier it is", () => {
    const opened = (height: number, sides: [number, number]): string[] => {
      const groups: ModuleSpec["groups"] = [
        { parent: -1, kind: "module", label: "module", worth: 1 },
        { parent: 0, kind: "entry", label: "main", worth: 1 },
        { parent: 1, kind: "scope", label: "there", worth: 0.3, direction: sides[0] },
        { parent: 1, kind: "scope", label: "and back", worth: 0.6, direction: sides[1] },
      ];
      const instructions = Array.from({ length: 25 }, (_, k) => ({
        name: `i${k}`,
        opcode: "tanh",
        group: k < 1 ? 1 : k < 19 ? 2 : 3,
        operands: k > 0 ? [k - 1] : [],
      }));
      const engine = engineOf({ instructions, groups }, 300, height);
      const { projection } = engine.openDefault().picture;
      return [...projection.nodes]
        .filter((_, item) => item > 0 && projection.kind[item] === ItemKind.Open)
        .map((v) => nodeLabel(engine.tree, v));
    };
    const heights = Array.from({ length: 30 }, (_, k) => 150 + 40 * k);
    const alone = (sides: [number, number]): number =>
      heights.filter((h) => opened(h, sides).join() === "and back").length;
    expect(alone([0, 0])).toBeGreaterThan(0);
    expect(alone([1, 2])).toBe(0);
    expect(heights.some((h) => opened(h, [1, 2]).length === 2)).toBe(true);
  });

  test("a program that is one loop is in the loop's frame, and one scope in the scope's", () => {
    const opened = (spec: ModuleSpec): string[] => {
      const engine = engineOf(spec, 1200, 900);
      const { projection } = engine.openDefault().picture;
      return [...projection.nodes]
        .filter((_, item) => item > 0 && projection.kind[item] === ItemKind.Open)
        .map((v) => nodeLabel(engine.tree, v));
    };
    const spec = loop();
    spec.instructions[2] = {
      ...spec.instructions[2],
      opcode: "tuple",
      family: "plumbing",
      flags: Flag.Plumbing,
    };
    expect(opened(spec)[0]).toBe("while");
    const groups: ModuleSpec["groups"] = [
      { parent: -1, kind: "module", label: "module" },
      { parent: 0, kind: "entry", label: "main" },
      { parent: 1, kind: "scope", label: "train_step" },
    ];
    const instructions = [0, 1, 2].map((k) => ({
      name: `d${k}`,
      opcode: "dot",
      group: 2,
      operands: k ? [k - 1] : [],
    }));
    expect(opened({ instructions, groups })).toEqual(["train_step"]);
  });

  test("columns and rows only where the picture does not fit without", () => {
    let free = 0;
    for (let width = 260; width <= 900; width += 20) {
      const engine = engineOf(passes(), width, 0.6 * width);
      const { ways, projection } = engine.openDefault().picture;
      const writer = new ItemWriter(
        engine.tree,
        engine.flow,
        new FamilyCounts(engine.tree, engine.flow),
        METRICS,
      );
      const plain = layoutPicture(projection, writer, new LayoutCache(), {
        aspect: 1.75,
        spread: 0.45,
      });
      const fits = Math.min(width / plain.width, (0.6 * width) / plain.height) >= 10 / SUB_SIZE;
      if (fits) expect(ways.size).toBe(0);
      if (ways.size > 0) free++;
    }
    expect(free).toBeGreaterThan(3);
  });

  test("what is opened after the first picture leaves containers that do not hold it as they are", () => {
    let compared = 0;
    for (let seed = 1; seed <= 150; seed++) {
      const engine = engineOf(randomModule(150, 24, generator(seed)), 900, 700);
      const before = engine.openDefault().picture;
      const { nodes, kind } = before.projection;
      const closed = [...nodes.keys()].filter(
        (k) => kind[k] === ItemKind.Closed && nodes[k] >= engine.tree.instructions,
      );
      if (before.ways.size === 0 || closed.length === 0) continue;
      const opened = nodes[closed[0]];
      engine.set({ kind: "group", index: opened - engine.tree.instructions }, true);
      const after = engine.rebuild().picture;
      const around = new Set<number>();
      for (let v = opened; v >= 0; v = engine.tree.parent[v]) around.add(v);
      for (const [item, v] of [...nodes].entries()) {
        if (around.has(v) || kind[item] !== ItemKind.Open) continue;
        const now = after.projection.nodes.indexOf(v);
        expect([after.w[now], after.h[now]]).toEqual([before.w[item], before.h[item]]);
        compared++;
      }
    }
    expect(compared).toBeGreaterThan(3);
  });

  test("rows too wide for a narrow pane become shorter ones", () => {
    const label = "convert f32[256,1536] ×7";
    const weights = Array.from({ length: 8 }, (_, k) => k);
    const engine = engineOf(
      {
        instructions: [
          ...weights.map((k) => ({ name: `w${k}`, opcode: "tanh", group: 2 + k, label: "tanh" })),
          { name: "sum", opcode: "add", group: 1, operands: weights },
        ],
        groups: [
          { parent: -1, kind: "module", label: "module" },
          { parent: 0, kind: "entry", label: "main" },
          ...weights.map((k) => ({ parent: 1, kind: "scope" as const, label: `${label} ${k}` })),
        ],
      },
      832,
      488,
    );
    const { picture } = engine.openDefault();
    expect(picture.projection.kind.length).toBeGreaterThanOrEqual(9);
    expect(SUB_SIZE * Math.min(832 / picture.width, 488 / picture.height)).toBeGreaterThanOrEqual(
      10,
    );
  });

  test("a chain too tall for a low pane is read from left to right", () => {
    const instructions: ModuleSpec["instructions"] = [];
    for (let k = 0; k < 4; k++) {
      const operands = k ? [k - 1] : [];
      instructions.push({ name: `dot.${k}`, opcode: "dot", group: 1, operands });
    }
    const groups: ModuleSpec["groups"] = [
      { parent: -1, kind: "module", label: "module" },
      { parent: 0, kind: "entry", label: "main" },
    ];
    const low = engineOf({ instructions, groups }, 832, 100).openDefault().picture;
    expect(SUB_SIZE * Math.min(832 / low.width, 100 / low.height)).toBeGreaterThanOrEqual(10);
    const boxes = [...low.x.keys()].filter((v) => low.projection.kind[v] === ItemKind.Box);
    expect(new Set(boxes.map((v) => low.y[v])).size).toBe(1);
    // One below the other, as usual, where there is room.
    const roomy = engineOf({ instructions, groups }, 832, 400).openDefault().picture;
    expect(new Set(boxes.map((v) => roomy.y[v])).size).toBe(4);
  });

  test("openAll keeps to its limit, closeAll shows the outermost level", () => {
    const engine = engineOf(transformer(30, 40));
    engine.openDefault();
    for (const limit of [50, 500, 100_000]) {
      engine.openAll(limit);
      const scene = engine.rebuild();
      expect(scene.count).toBeLessThanOrEqual(limit + 80);
      if (limit > 10_000) expect([...scene.picture.projection.kind]).not.toContain(ItemKind.Stack);
    }
    engine.closeAll();
    const kinds = [...engine.rebuild().picture.projection.kind].slice(1);
    expect(kinds.filter((k) => k === ItemKind.Open)).toEqual([]);
  });

  test("opening, closing and opening again gives the same picture", () => {
    const engine = engineOf(loop());
    const first = engine.openDefault();
    // A loop opens into its body by itself.
    expect(engine.isOpen({ kind: "group", index: 2 })).toBe(true);
    expect(engine.set({ kind: "instruction", index: 1 }, false)).toBe(true);
    expect(engine.rebuild().count).toBeLessThan(first.count);
    expect(engine.set({ kind: "instruction", index: 1 }, true)).toBe(true);
    expect([...engine.rebuild().picture.x]).toEqual([...first.picture.x]);
    expect(engine.canOpen({ kind: "instruction", index: 2 })).toBe(false);
  });

  test("a path holds what is between, and nothing else", () => {
    const model = buildModel(loop());
    expect([...pathBetween(model, 0, 2)]).toEqual([0, 1, 2]);
    expect(pathBetween(model, 2, 0).size).toBe(0);
  });

  test("arrows follow the data and go round a container", () => {
    const engine = engineOf(transformer(1, 5));
    engine.openDefault();
    engine.openAll(100);
    const scene = engine.rebuild();
    const { itemOfInstruction } = scene.picture.projection;
    const dot = itemOfInstruction[2];
    const next = nextItem(scene, dot, "user");
    expect(next).toBe(itemOfInstruction[3]);
    expect(nextItem(scene, next, "operand")).toBe(dot);
    expect(nextItem(scene, dot, "next")).toBe(itemOfInstruction[3]);
    expect(nextItem(scene, nextItem(scene, dot, "out"), "in")).toBe(dot);
  });
});

describe("colours", () => {
  const luminance = (hex: string): number => {
    const c = [1, 3, 5].map((k) => {
      const v = Number.parseInt(hex.slice(k, k + 2), 16) / 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
  };
  const contrast = (a: string, b: string): number => {
    const [low, high] = [luminance(a), luminance(b)].sort((p, q) => p - q);
    return (high + 0.05) / (low + 0.05);
  };
  test.each([
    ["light", LIGHT],
    ["dark", DARK],
  ])("text on every fill of the %s theme has a contrast of 4.5", (_, theme) => {
    const fills = [
      ...Object.values(theme.families),
      ...theme.ramp,
      ...theme.categories,
      theme.zero,
      theme.unknown,
      theme.group,
      theme.fold,
    ];
    for (const fill of fills) expect(contrast(theme.text, fill)).toBeGreaterThanOrEqual(4.5);
    for (const fill of [theme.group, theme.fold, ...theme.containers]) {
      expect(contrast(theme.mutedText, fill)).toBeGreaterThanOrEqual(4.5);
      expect(contrast(theme.title, fill)).toBeGreaterThanOrEqual(4.5);
    }
    for (const fill of [theme.chip, theme.output]) {
      expect(contrast(theme.chipText, fill)).toBeGreaterThanOrEqual(4.5);
    }
  });

  test("small operations fade, but not where colours are amounts", () => {
    const coloring = { id: "x", label: "X", unit: "B", scale: "log" as const };
    const backgrounds = (flags: number, amounts: boolean): number => {
      const spec = loop();
      for (const i of spec.instructions) i.flags = (i.flags ?? 0) | flags;
      const engine = engineOf(spec);
      engine.openAll(500);
      const scene = engine.rebuild();
      let s = state(engine, scene);
      if (amounts) {
        const values = () => spec.instructions.map((_, k) => k);
        const { colors } = paintInstructions(engine.model, { ...coloring, values }, LIGHT);
        s = { ...s, colors, looks: itemLooks(scene, colors, () => true) };
      }
      const surface = new Recorder();
      paintScene(surface, scene, s);
      return surface.rects.filter((r) => r.style.fill === LIGHT.background).length;
    };
    expect(backgrounds(Flag.Little, false)).toBeGreaterThan(backgrounds(0, false));
    expect(backgrounds(Flag.Little, true)).toBe(backgrounds(0, true));
  });

  test.each(["log", "linear"] as const)(
    "amounts on a %s scale: unknown, 0 and the least of the others differ",
    (scale) => {
      const model = buildModel(loop());
      const values = [Number.NaN, 0, 1, 100, 1, 1, 1, 1, 1, 1, 1000];
      const { colors, legend } = paintInstructions(
        model,
        { id: "x", label: "X", unit: "B", scale, values: () => values },
        LIGHT,
      );
      expect(colors.palette[colors.index[0]]).toBe(LIGHT.unknown);
      expect(colors.palette[colors.index[1]]).toBe(LIGHT.zero);
      expect(colors.palette[colors.index[2]]).toBe(LIGHT.ramp[0]);
      expect(new Set([LIGHT.unknown, LIGHT.zero, LIGHT.ramp[0]]).size).toBe(3);
      expect(colors.index[10]).toBe(colors.palette.length - 1);
      expect(legend[0].value).toBe(1);
      expect(legend[legend.length - 1].value).toBeCloseTo(1000);
    },
  );
});

test("closed groups show what adds up inside them, as a share of the whole", () => {
  const model = buildModel(loop());
  const n = model.instruction.count;
  const values = Float64Array.from({ length: n }, (_, i) => (i % 3 === 0 ? Number.NaN : i));
  const engine = new Engine(model, new TextMetrics(), 900, 600);
  const scene = engine.openDefault();
  const { colors } = paintInstructions(
    model,
    { id: "x", label: "X", unit: "s", scale: "log", values: () => values, amounts: () => values },
    LIGHT,
  );
  const { sums, bars } = itemLooks(scene, colors, () => true);
  const known = values.filter((v) => v > 0);
  expect(sums?.total).toBe(known.reduce((a, b) => a + b, 0));
  const { itemOfInstruction } = scene.picture.projection;
  for (const [item, shares] of bars) {
    let inside = 0;
    for (let i = 0; i < n; i++)
      if (itemOfInstruction[i] === item && values[i] > 0) inside += values[i];
    expect(sums?.of[item]).toBe(inside);
    expect(shares).toHaveLength(1);
    expect(shares[0].share).toBeCloseTo(inside / (sums?.total ?? 1));
  }
});

test("nothing known: no scale, all unknown", () => {
  const model = buildModel(loop());
  const values = new Float64Array(model.instruction.count).fill(Number.NaN);
  const { legend, colors } = paintInstructions(
    model,
    { id: "x", label: "X", unit: "s", scale: "log", values: () => values },
    LIGHT,
  );
  expect(legend).toEqual([]);
  expect([...colors.index].every((k) => k === 0)).toBe(true);
});

test("a log scale ends three decades below the most, and says so", () => {
  const model = buildModel(loop());
  const values = Array.from({ length: model.instruction.count }, (_, i) => 10 ** -i);
  const { legend, colors } = paintInstructions(
    model,
    { id: "x", label: "X", unit: "s", scale: "log", values: () => values },
    LIGHT,
  );
  expect(legend[0].value).toBeCloseTo(1e-3);
  expect(legend[0].atMost).toBe(true);
  expect(colors.index[4]).toBe(colors.index[3]);
  expect(colors.index[2]).toBeGreaterThan(colors.index[3]);
});

describe("text", () => {
  test("what does not fit keeps both ends", () => {
    const m = new TextMetrics();
    const text = "fusion_multiply_subtract_transpose";
    const short = m.fit(text, 12, 100);
    expect(m.width(short, 12)).toBeLessThanOrEqual(100);
    expect(short).toMatch(/^fusion.*….*e$/);
    expect(m.fit("add", 12, 100)).toBe("add");
    expect(m.fit("add", 12, 1)).toBe("");
  });
});

test("amounts end where everything together would be: closed groups are told apart", () => {
  const model = buildModel(loop());
  const values = Float64Array.from({ length: model.instruction.count }, () => 1e-6);
  const { colors, legend } = paintInstructions(
    model,
    { id: "x", label: "X", unit: "s", scale: "log", values: () => values, amounts: () => values },
    LIGHT,
  );
  const all = values.length * 1e-6;
  expect(legend[legend.length - 1].value).toBeCloseTo(all);
  const place = colors.amounts?.place ?? (() => 0);
  expect(place(all)).toBe(colors.palette.length - 1);
  expect(place(all / 2)).toBeLessThan(place(all));
  expect(place(all / 2)).toBeGreaterThan(colors.index[0]);
});
