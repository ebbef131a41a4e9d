/** Drawing for both timelines: a ruler, lane names, bars with as much of the label as fits. */
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";

export const RULER = 20;
const FONT = "11px system-ui, sans-serif";
/** Width of an average character, and of the space around a label, px. */
const LETTER = 5.8;
const ROOM = 8;

/** A window of time on a canvas of `width` × `height` CSS pixels. */
export interface Span {
  from: number; // seconds
  to: number;
  width: number;
  height: number;
  selected: number; // instruction; -1 none
}

export class Brush {
  readonly g: CanvasRenderingContext2D;
  readonly span: Span;
  readonly scale: number; // pixels per second
  readonly text: string;
  readonly dim: string;
  readonly line: string;
  readonly back: string;
  readonly other: string;
  readonly page: string;
  readonly accent: string;
  readonly families: readonly string[];

  constructor(g: CanvasRenderingContext2D, model: ViewModel, span: Span) {
    this.g = g;
    this.span = span;
    this.scale = span.width / (span.to - span.from);
    const style = getComputedStyle(g.canvas);
    const color = (name: string) => style.getPropertyValue(name).trim();
    this.text = color("--text");
    this.dim = color("--dim");
    this.line = color("--line");
    this.back = color("--bg2");
    this.other = color("--bg3");
    this.page = color("--bg");
    this.accent = color("--accent");
    this.families = model.header.families.map((_, k) => color(`--hlo-family-${k}`) || this.dim);
    g.font = FONT;
    g.textBaseline = "middle";
    g.clearRect(0, 0, span.width, span.height);
  }

  x(seconds: number): number {
    return (seconds - this.span.from) * this.scale;
  }

  /** Ticks about a hundred pixels apart, at 1, 2 or 5 times a power of ten. */
  ruler(): void {
    const { g } = this;
    const { from, to, width, height } = this.span;
    const rough = 100 / this.scale;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) ?? rough;
    g.fillStyle = this.page;
    g.fillRect(0, 0, width, RULER);
    g.fillStyle = this.dim;
    g.strokeStyle = this.line;
    g.lineWidth = 1;
    g.beginPath();
    for (let k = Math.ceil(from / step); k * step <= to; k++) {
      const at = Math.round(this.x(k * step)) + 0.5;
      g.moveTo(at, RULER - 5);
      g.lineTo(at, height);
      g.fillText(format.seconds(Number((k * step).toPrecision(9))), at + 3, 9);
    }
    g.stroke();
  }

  /** The background of a lane with its name above. */
  lane(name: string, y: number, tall: number): void {
    this.g.fillStyle = this.back;
    this.g.fillRect(0, y, this.span.width, tall);
    this.g.fillStyle = this.dim;
    this.g.fillText(name, 4, y - 8);
  }

  bar(x: number, y: number, w: number, tall: number, fill: string, label: string): void {
    this.g.fillStyle = fill;
    this.g.fillRect(x, y, w, tall);
    const letters = Math.floor((w - ROOM) / LETTER);
    if (letters < 3) return;
    this.g.fillStyle = this.text;
    const shown = label.length > letters ? `${label.slice(0, letters - 1)}…` : label;
    this.g.fillText(shown, x + ROOM / 2, y + tall / 2 + 0.5);
  }

  /** A hatched bar, which can be distinguished without colour. */
  hatched(x: number, y: number, w: number, tall: number, color: string): void {
    const { g } = this;
    g.save();
    g.beginPath();
    g.rect(x, y, w, tall);
    g.clip();
    g.strokeStyle = color;
    g.lineWidth = 2;
    g.beginPath();
    for (let at = x - tall - ((x - tall) % 6); at < x + w; at += 6) {
      g.moveTo(at, y + tall);
      g.lineTo(at + tall, y);
    }
    g.stroke();
    g.restore();
  }

  ring(x: number, y: number, w: number, tall: number): void {
    this.g.strokeStyle = this.accent;
    this.g.lineWidth = 2;
    this.g.strokeRect(x + 1, y + 1, Math.max(2, w - 2), tall - 2);
    this.g.lineWidth = 1;
  }
}
