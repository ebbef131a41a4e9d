/**
 * A tall stack of ranks reads like a newspaper: down the first column, then down the next. The flow
 * goes down and to the right. Cuts fall where few edges cross, and only if the picture improves.
 */

export interface ColumnChoice {
  /** First rank of each column, followed by the number of ranks. */
  begins: number[];
}

const MAX_COLUMNS = 12;
/** More edges than this across a cut are worse than a tall picture. */
const MAX_CUT = 6;

export function chooseColumns(
  heights: Float64Array,
  gaps: Float64Array,
  widths: Float64Array,
  crossing: Int32Array,
  aspect: number,
  gutter: number,
  minHeight: number,
): ColumnChoice {
  const ranks = heights.length;
  const whole: ColumnChoice = { begins: [0, ranks] };
  let total = 0;
  let widest = 0;
  for (let r = 0; r < ranks; r++) {
    total += heights[r] + gaps[r];
    widest = Math.max(widest, widths[r]);
  }
  if (total < minHeight || ranks < 3 || widest / total > aspect * 0.6) return whole;
  const score = (begins: number[]): number => {
    let width = 0;
    let height = 0;
    let cut = 0;
    for (let c = 0; c + 1 < begins.length; c++) {
      let h = 0;
      let w = 0;
      for (let r = begins[c]; r < begins[c + 1]; r++) {
        h += heights[r] + gaps[r];
        w = Math.max(w, widths[r]);
      }
      height = Math.max(height, h);
      if (c > 0) cut += crossing[begins[c] - 1] - 1;
      width += w + (c > 0 ? gutter : 0);
    }
    return Math.min(aspect / width, 1 / height) / (1 + 0.015 * cut);
  };
  let best = whole.begins;
  let bestScore = score(best);
  for (let k = 2; k <= MAX_COLUMNS; k++) {
    const begins = cutInto(k, heights, gaps, crossing, total);
    if (!begins) continue;
    const s = score(begins);
    // Another column must improve the score noticeably.
    if (s > bestScore * 1.07) {
      best = begins;
      bestScore = s;
    }
  }
  return { begins: best };
}

/** Cuts, at allowed places, into at most k columns of about the least height that holds all ranks. */
function cutInto(
  k: number,
  heights: Float64Array,
  gaps: Float64Array,
  crossing: Int32Array,
  total: number,
): number[] | null {
  const ranks = heights.length;
  for (let limit = total / k; limit < total; limit *= 1.06) {
    const begins = [0];
    let at = 0;
    while (at < ranks) {
      let sum = 0;
      let end = -1;
      for (let r = at; r < ranks; r++) {
        sum += heights[r] + gaps[r];
        if (sum > limit && r > at) break;
        if (r + 1 === ranks || crossing[r] <= MAX_CUT) end = r + 1;
      }
      if (end < 0) break;
      begins.push(end);
      at = end;
      if (begins.length > k + 1) break;
    }
    if (at === ranks && begins.length <= k + 1) return begins;
  }
  return null;
}
