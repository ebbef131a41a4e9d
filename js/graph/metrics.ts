/** Sizes of things in the picture, in world units: CSS pixels when the zoom is 1. */

export const BOX_HEIGHT = 26;
/** Of each line of text below a name. */
export const LINE_HEIGHT = 16;
export const CHIP_HEIGHT = 16;
export const CHIP_GAP = 4;
export const HEADER_HEIGHT = 22;
export const PAD = 6;
export const ROOT_PAD = 14;
/** How far the cards of a stack stick out behind each other. */
export const STACK_OFFSET = 4;
/** Space for the sign that something can be opened. */
export const SIGN = 16;
export const LABEL_SIZE = 13;
/** Names are nine pixels high: the initial view never goes below it. */
export const READABLE_SCALE = 9 / LABEL_SIZE;
export const SUB_SIZE = 13;
export const CHIP_SIZE = 13;
export const TITLE_SIZE = 13;
export const SHAPE_SIZE = 7;

const DEFAULT_WIDTHS =
  "28 28 35 56 56 89 67 19 33 33 39 58 28 33 28 28 56 56 56 56 56 56 56 56 56 56 28 28 58 58 58 56 " +
  "101 67 67 72 72 67 61 78 72 28 50 67 56 83 72 78 67 78 72 67 61 72 67 94 67 67 61 28 28 28 47 56 " +
  "33 56 56 50 56 56 28 56 56 22 22 50 22 83 56 56 56 56 33 50 28 56 50 72 50 50 50 33 26 33 58";

/**
 * Widths of text as sums of the widths of its characters, so that measuring 100,000 labels takes
 * only additions. Kerning makes real text slightly narrower, never wider.
 */
export class TextMetrics {
  private regular = new Float32Array(128);
  private bold = new Float32Array(128);
  /** Widths at 100 pixels of the 95 printable ASCII characters; non-ASCII ones count as 85. */
  constructor(regular: ArrayLike<number> | null = null, bold: ArrayLike<number> | null = null) {
    const base = DEFAULT_WIDTHS.split(" ").map(Number);
    this.regular.fill(85);
    this.bold.fill(90);
    for (let c = 32; c < 127; c++) {
      this.regular[c] = regular ? regular[c - 32] : base[c - 32];
      this.bold[c] = bold ? bold[c - 32] : base[c - 32] * 1.08;
    }
  }
  width(text: string, size: number, bold = false): number {
    const table = bold ? this.bold : this.regular;
    let sum = 0;
    for (let k = 0; k < text.length; k++) {
      const c = text.charCodeAt(k);
      sum += c < 128 ? table[c] : 85;
    }
    return (sum * size) / 100;
  }
  /** The text, or its two ends around "…" if it does not fit; "" if not even that fits. */
  fit(text: string, size: number, room: number, bold = false): string {
    if (this.width(text, size, bold) <= room) return text;
    const dots = this.width("…", size, bold);
    if (dots > room) return "";
    const table = bold ? this.bold : this.regular;
    const cost = (k: number): number => {
      const c = text.charCodeAt(k);
      return ((c < 128 ? table[c] : 85) * size) / 100;
    };
    let left = room - dots;
    let head = 0;
    let tail = text.length;
    // The beginning says more than the end: it gets two characters for each one of the end.
    for (let turn = 0; head < tail; turn++) {
      const next = turn % 3 === 2 ? cost(tail - 1) : cost(head);
      if (next > left) break;
      left -= next;
      if (turn % 3 === 2) tail--;
      else head++;
    }
    return `${text.slice(0, head)}…${text.slice(tail)}`;
  }
}
