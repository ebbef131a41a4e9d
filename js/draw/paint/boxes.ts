/** Closed items: boxes of instructions, groups and stacks, and the chips in them. */
import { quantity } from "../../base/format.ts";
import * as M from "../../graph/metrics.ts";
import { ASIDE_GAP, type Chip, ChipKind } from "../../graph/project/items.ts";
import { ItemKind } from "../../graph/project/projection.ts";
import type { Scene } from "../../scene/scene.ts";
import type { Surface } from "../../scene/surface.ts";
import { Life } from "../../state/passes/passes.ts";
import { alphaOf, fillOf, isUnknown, type PaintState, wordsAlphaOf } from "./paint-state.ts";

/** Text smaller than this on screen is not drawn. */
const TEXT_PIXELS = 6;
/** Shapes in boxes are readable from this size on. */
export const ROOMY_PIXELS = 9.5;
/** How far operations that cost next to nothing fade into the background. */
const PALE = 0.6;

/** The "+" or "−" sign of something that can be opened or closed. */
export function sign(
  surface: Surface,
  s: PaintState,
  x: number,
  y: number,
  plus: boolean,
  alpha?: number,
): void {
  surface.text(plus ? "+" : "−", x, y, {
    size: 14,
    bold: true,
    color: s.theme.mutedText,
    align: "center",
    alpha,
  });
}

export function plainBox(surface: Surface, scene: Scene, s: PaintState, item: number): void {
  const kind = scene.picture.projection.kind[item];
  const bars = s.looks.bars.get(item);
  const main = bars && bars.length > 0 ? s.colors.palette[bars[0].color] : s.theme.group;
  surface.rect(s.x[item], s.y[item], s.w[item], s.h[item], {
    fill: kind === ItemKind.Box ? fillOf(s, item, s.theme.unknown) : main,
    alpha: alphaOf(s, item),
  });
}

export function box(surface: Surface, scene: Scene, s: PaintState, item: number): void {
  const { theme, scale, metrics } = s;
  const { text, projection } = scene.picture;
  const kind = projection.kind[item];
  const words = text[item];
  const alpha = alphaOf(s, item);
  const ink = wordsAlphaOf(s, item);
  const x = s.x[item];
  let y = s.y[item];
  let w = s.w[item];
  let h = s.h[item];
  const border = Math.max(1, 0.7 / scale);
  const life = s.life ? s.life.items[item] : Life.Kept;
  if (kind === ItemKind.Box) {
    const unknown = isUnknown(s, item);
    // the colours of amounts are read on a scale: they stay as they are
    const pale = words.quiet && !s.life && !s.colors.numeric;
    surface.rect(x, y, w, h, {
      fill: fillOf(s, item, theme.unknown),
      stroke: unknown ? theme.edge : stepBorder(s, life),
      lineWidth: border,
      radius: 5,
      dash: unknown || life === Life.Removed,
      alpha,
    });
    if (pale) {
      const veil = { fill: theme.background, radius: 5, alpha: PALE * (alpha ?? 1) };
      surface.rect(x + border, y + border, w - 2 * border, h - 2 * border, veil);
    }
    if (M.LABEL_SIZE * scale < TEXT_PIXELS) return;
    const opens = scene.opens(item);
    const roomy = M.SHAPE_SIZE * scale >= ROOMY_PIXELS;
    const middle = y + M.BOX_HEIGHT / 2;
    const room = w - (opens ? M.SIGN : 0);
    surface.text(words.label, x + room / 2, roomy ? middle - 4 : middle, {
      size: M.LABEL_SIZE,
      color: theme.text,
      align: "center",
      alpha: ink,
    });
    const amount = roomy ? amountWords(s, item) : [];
    if (roomy && (amount.length > 0 || words.sub)) {
      const said = amount.join(" · ") || words.sub;
      surface.text(metrics.fit(said, M.SHAPE_SIZE, w - 8), x + w / 2, middle + 8, {
        size: M.SHAPE_SIZE,
        color: theme.text,
        align: "center",
        alpha: ink ?? 0.85,
      });
    }
    for (let k = 0; k < words.lines.length && !s.life; k++) {
      surface.text(words.lines[k], x + w / 2, middle + 16 + k * M.LINE_HEIGHT, {
        size: M.SUB_SIZE,
        color: theme.text,
        align: "center",
        alpha: ink ?? 0.85,
      });
    }
    if (opens) sign(surface, s, x + w - 11, middle, true, ink);
    stepSign(surface, s, x, y, life);
  } else {
    const stack = kind === ItemKind.Stack;
    // A stack's yellow could be mistaken for the low end of the heat scale.
    const plain = s.looks.sums !== null || Boolean(s.life);
    const heat = s.looks.fill[item] >= 0;
    const fill = heat ? fillOf(s, item, theme.group) : stack && !plain ? theme.fold : theme.group;
    const stroke = stack && !plain ? theme.foldBorder : theme.groupBorder;
    if (stack) {
      w -= 2 * M.STACK_OFFSET;
      h -= 2 * M.STACK_OFFSET;
      for (let k = 2; k > 0; k--) {
        surface.rect(x + k * M.STACK_OFFSET, y + (2 - k) * M.STACK_OFFSET, w, h, {
          fill,
          stroke,
          lineWidth: border,
          radius: 6,
          alpha,
        });
      }
      y += 2 * M.STACK_OFFSET;
    }
    const quiet = words.quiet && life === Life.Kept;
    surface.rect(x, y, w, h, {
      fill: quiet && !heat ? undefined : fill,
      stroke: quiet ? theme.containerBorder : life === Life.Kept ? stroke : stepBorder(s, life),
      lineWidth: border,
      radius: words.rest ? 11 : 6,
      dash: life === Life.Removed,
      alpha,
    });
    stepSign(surface, s, x, y, life);
    if (!quiet || s.looks.sums) bar(surface, s, item, x + 8, y + h - 6, w - 16);
    if (M.LABEL_SIZE * scale < TEXT_PIXELS) return;
    const left = x + 10;
    const tiny = words.small && M.SHAPE_SIZE * scale >= ROOMY_PIXELS;
    const line = y + (tiny ? 10 : words.quiet ? M.BOX_HEIGHT / 2 - 3 : 14);
    surface.text(words.label, left, line, {
      size: M.LABEL_SIZE,
      bold: !words.quiet,
      color: words.rest && words.lines.length === 0 && !heat ? theme.mutedText : theme.text,
      alpha: ink,
    });
    if (stack) {
      const count = projection.stackEnd[item] - (projection.nodes[item] - scene.tree.stacks);
      surface.text(`×${count}`, x + w - M.SIGN - 8, y + 14, {
        size: M.LABEL_SIZE,
        bold: true,
        color: theme.text,
        align: "right",
        alpha: ink,
      });
    }
    sign(surface, s, x + w - 12, words.quiet ? line : y + 14, true, ink);
    const color = heat ? theme.text : theme.mutedText;
    const put = (text: string, x: number, y: number, size: number): void =>
      surface.text(text, x, y, { size, color, alpha: ink });
    const lines = s.life ? [] : words.lines;
    if (words.small && lines.length > 0 && !tiny) {
      const after = left + metrics.width(words.label, M.LABEL_SIZE, !words.quiet) + ASIDE_GAP;
      put(lines[0], after, line, M.SUB_SIZE);
    }
    if (!words.small || tiny) {
      const size = tiny ? M.SHAPE_SIZE : M.SUB_SIZE;
      const amount = s.life
        ? s.life.words(item)
        : closedWords(s, item, words.sub, stack, size, w - 20);
      // An amount takes the place of the last line where there is none for it.
      const says = s.life || words.counted || tiny || amount !== words.sub;
      const shown = words.small
        ? []
        : lines.slice(0, lines.length - Number(!words.counted && says));
      for (let k = 0; k < shown.length; k++) put(shown[k], left, y + 30 + k * M.LINE_HEIGHT, size);
      const last = tiny ? y + 19 : y + 30 + shown.length * M.LINE_HEIGHT;
      if (says) put(metrics.fit(amount, size, w - 20), left, last, size);
    }
  }
  if (words.chips.length > 0 && M.CHIP_SIZE * scale >= TEXT_PIXELS) {
    const [, lift] = scene.chipShift(item);
    for (const chip of words.chips)
      if (shown(s, item, chip)) paintChip(surface, s, x, s.y[item] + lift, chip, alpha, ink);
  }
}

/** A chip of the layout may belong to a pass other than the one shown. */
function shown(s: PaintState, item: number, chip: Chip): boolean {
  if (!s.life) return true;
  const own = chip.kind === ChipKind.Parameter || chip.kind === ChipKind.Constant;
  return own && s.life.chips(item, chip.value);
}

function stepBorder(s: PaintState, life: Life): string {
  const { steps } = s.theme;
  if (life === Life.Added) return steps.addedEdge;
  if (life === Life.Removed) return steps.removedEdge;
  return life === Life.Changed ? steps.changedEdge : s.theme.boxBorder;
}

/** A sign on the corner, so that the change is not shown by colour alone. */
function stepSign(surface: Surface, s: PaintState, x: number, y: number, life: Life): void {
  const text = life === Life.Added ? "+" : life === Life.Removed ? "−" : "~";
  if (life === Life.Kept || life === Life.Absent) return;
  surface.rect(x - 6, y - 6, 13, 13, { fill: stepBorder(s, life), radius: 7 });
  surface.text(text, x + 0.5, y + 0.5, {
    size: 12,
    bold: true,
    color: s.theme.background,
    align: "center",
  });
}

/** "85 µs", "32 %" for amounts that add up; empty if they do not, or the amount is unknown. */
function amountWords(s: PaintState, item: number): string[] {
  const { sums } = s.looks;
  const { amounts } = s.colors;
  if (!sums || !amounts || !(sums.of[item] > 0)) return [];
  const part = (100 * sums.of[item]) / sums.total;
  const share = part >= 10 ? Math.round(part) : Number(part.toPrecision(1));
  return [quantity(sums.of[item], amounts.unit), `${share < 0.1 ? "< 0.1" : share} %`];
}

/** The second line of a closed group: its amount first if it has one, then whatever still fits. */
function closedWords(
  s: PaintState,
  item: number,
  sub: string,
  stack: boolean,
  size: number,
  room: number,
): string {
  const words = amountWords(s, item);
  if (words.length === 0) return sub;
  if (stack)
    words[0] += " in all"; // its other figures are per member
  else words.push(sub.split(" · ")[0]);
  while (words.length > 1 && s.metrics.width(words.join(" · "), size) > room) words.pop();
  return words.join(" · ");
}

/** The mix of what is inside, as a bar, so that a closed group still shows something of it. */
function bar(surface: Surface, s: PaintState, item: number, x: number, y: number, w: number): void {
  const shares = s.looks.bars.get(item);
  if (!shares) return;
  let at = x;
  if (s.looks.sums) surface.rect(x, y, w, 3.5, { fill: s.theme.zero, alpha: alphaOf(s, item) });
  for (const { color, share } of shares) {
    const part = share * w;
    if (part * s.scale >= 0.7) {
      surface.rect(at, y, part, 3.5, { fill: s.colors.palette[color], alpha: alphaOf(s, item) });
    }
    at += part;
  }
}

export function paintChip(
  surface: Surface,
  s: PaintState,
  x: number,
  y: number,
  chip: Chip,
  alpha: number | undefined,
  ink = alpha,
): void {
  const { theme } = s;
  const back = chip.kind === ChipKind.BackFrom || chip.kind === ChipKind.BackTo;
  const stub = back || chip.kind === ChipKind.From || chip.kind === ChipKind.To;
  surface.rect(x + chip.x, y + chip.y, chip.w, M.CHIP_HEIGHT - 1, {
    fill: chip.kind === ChipKind.Output ? theme.output : theme.chip,
    stroke: back ? theme.backEdge : stub ? theme.edge : theme.boxBorder,
    lineWidth: 1,
    radius: chip.kind === ChipKind.Parameter || stub ? 7 : 2,
    dash: stub,
    alpha,
  });
  surface.text(chip.text, x + chip.x + chip.w / 2, y + chip.y + M.CHIP_HEIGHT / 2, {
    size: M.CHIP_SIZE,
    color: theme.chipText,
    align: "center",
    alpha: ink,
  });
}
