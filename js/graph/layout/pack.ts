/**
 * Places the disconnected parts of a container, in the order `turn`, on shelves from top to bottom,
 * and on each shelf in stacks from left to right.
 */

export interface Packing {
  x: Float64Array;
  y: Float64Array;
  width: number;
  height: number;
}

export function pack(
  widths: Float64Array,
  heights: Float64Array,
  turn: number[],
  gapX: number,
  gapY: number,
  aspect: number,
): Packing {
  const n = widths.length;
  if (n === 1) {
    return {
      x: new Float64Array(1),
      y: new Float64Array(1),
      width: widths[0],
      height: heights[0],
    };
  }
  let area = 0;
  let widest = 0;
  for (let k = 0; k < n; k++) {
    area += (widths[k] + gapX) * (heights[k] + gapY);
    widest = Math.max(widest, widths[k]);
  }
  let best: Packing | null = null;
  let bestScore = 0;
  // Try a few widths and take the one whose picture is largest on screen.
  for (const factor of [0.85, 1, 1.2, 1.45, 1.8]) {
    const limit = Math.max(widest, Math.sqrt(area * aspect) * factor);
    const packing = shelves(widths, heights, turn, gapX, gapY, limit);
    const score = Math.min(aspect / packing.width, 1 / packing.height);
    if (!best || score > bestScore * 1.02) {
      best = packing;
      bestScore = score;
    }
  }
  return best as Packing;
}

function shelves(
  widths: Float64Array,
  heights: Float64Array,
  turn: number[],
  gapX: number,
  gapY: number,
  limit: number,
): Packing {
  const n = widths.length;
  const x = new Float64Array(n);
  const y = new Float64Array(n);
  let top = 0;
  let shelfHeight = 0;
  let left = 0;
  let stackWidth = 0;
  let stackBottom = 0;
  let right = 0;
  let first = true;
  for (const k of turn) {
    const onStack = !first && stackBottom + gapY + heights[k] <= top + shelfHeight;
    const needed = Math.max(stackWidth, widths[k]);
    if (onStack && left + needed <= limit) {
      y[k] = stackBottom + gapY;
      stackWidth = needed;
    } else {
      const next = !first ? left + stackWidth + gapX : 0;
      if (!first && next + widths[k] > limit) {
        top += shelfHeight + gapY;
        left = 0;
        shelfHeight = heights[k];
      } else {
        left = next;
        shelfHeight = Math.max(shelfHeight, heights[k]);
      }
      y[k] = top;
      stackWidth = widths[k];
      first = false;
    }
    x[k] = left;
    stackBottom = y[k] + heights[k];
    right = Math.max(right, left + stackWidth);
  }
  return { x, y, width: right, height: top + shelfHeight };
}
