/** Squarified treemap (Bruls, Huizing, van Wijk 2000): proportional areas, nearly square tiles. */

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** The worst aspect ratio in a strip of total `area` whose tiles have areas from `least` to `most`. */
const worst = (side: number, area: number, least: number, most: number) =>
  Math.max((side * side * most) / (area * area), (area * area) / (side * side * least));

/**
 * A rectangle for every value, in the order of `values`, which must be positive and descending.
 * Together they fill `room` exactly.
 */
export function squarify(values: readonly number[], room: Rect): Rect[] {
  const out: Rect[] = [];
  let left = values.reduce((sum, v) => sum + v, 0);
  let { x, y, width, height } = room;
  for (let first = 0; first < values.length; ) {
    const side = Math.min(width, height);
    const scale = left > 0 ? (width * height) / left : 0;
    let sum = values[first];
    let end = first + 1;
    let ratio = worst(side, sum * scale, sum * scale, sum * scale);
    for (; end < values.length; end++) {
      const next = sum + values[end];
      const wider = worst(side, next * scale, values[end] * scale, values[first] * scale);
      if (wider > ratio) break;
      ratio = wider;
      sum = next;
    }
    // The last strip takes up the remainder, so that rounding leaves no gap.
    const part = end === values.length ? 1 : sum / left;
    const across = width >= height;
    const thick = (across ? width : height) * part;
    let at = across ? y : x;
    for (let k = first; k < end; k++) {
      const long = (side * values[k]) / sum;
      out.push(
        across
          ? { x, y: at, width: thick, height: long }
          : { x: at, y, width: long, height: thick },
      );
      at += long;
    }
    if (across) {
      x += thick;
      width = Math.max(0, width - thick);
    } else {
      y += thick;
      height = Math.max(0, height - thick);
    }
    left -= sum;
    first = end;
  }
  return out;
}
