/** Undo and redo of what was opened, closed and shown. */
import { type Opened, same } from "../graph/project/opened.ts";

/** Number of states kept; in a large module one takes some kilobytes. */
const KEPT = 200;

export class History {
  private past: Opened[] = [];
  private future: Opened[] = [];

  /** Records a change, given the states before and after it. */
  changed(before: Opened, now: Opened): void {
    if (same(before, now)) return;
    this.past.push(before);
    if (this.past.length > KEPT) this.past.shift();
    this.future = [];
  }
  get canUndo(): boolean {
    return this.past.length > 0;
  }
  get canRedo(): boolean {
    return this.future.length > 0;
  }
  undo(now: Opened): Opened | null {
    const to = this.past.pop();
    if (!to) return null;
    this.future.push(now);
    return to;
  }
  redo(now: Opened): Opened | null {
    const to = this.future.pop();
    if (!to) return null;
    this.past.push(now);
    return to;
  }
}
