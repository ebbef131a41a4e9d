/** Fetches the passes once, on demand, and reports progress. One per explorer. */
import type { Host, PassCost } from "../../view.ts";
import { decodePasses, type Passes } from "./passes.ts";

export type LoadState =
  | { is: "idle" }
  | { is: "loading"; done: number; of: number; words: string }
  | { is: "failed"; message: string }
  | {
      is: "ready";
      passes: Passes /** What is still to come, as text; "" if nothing. */;
      rest: string;
      more: boolean;
    };

export class PassLoader {
  state: LoadState = { is: "idle" };
  private listeners = new Set<() => void>();
  private running: AbortController | null = null;

  constructor(
    private host: Host,
    outer: AbortSignal,
  ) {
    outer.addEventListener("abort", () => this.running?.abort(), { once: true });
  }

  get offered(): boolean {
    return this.host.passes !== undefined;
  }
  /** What fetching them costs, as text; "" when it is negligible. */
  get price(): string {
    return this.host.passesPrice ?? "";
  }
  get passes(): Passes | null {
    return this.state.is === "ready" ? this.state.passes : null;
  }
  /** Calls back after each change. */
  on(listener: () => void, signal: AbortSignal): void {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener), { once: true });
  }
  private set(state: LoadState): void {
    this.state = state;
    for (const listener of [...this.listeners]) listener();
  }

  async start(): Promise<void> {
    if (this.state.is === "loading" || this.state.is === "ready" || !this.host.passes) return;
    this.running = new AbortController();
    const { signal } = this.running;
    const early: [number, PassCost][] = []; // figures that arrive before the passes
    let ended: string | null = null;
    this.set({ is: "loading", done: 0, of: 0, words: "Asking for the passes" });
    const put = (passes: Passes, row: number, cost: PassCost) => {
      if (passes.rows[row]) passes.rows[row].cost = cost;
    };
    try {
      const bytes = await this.host.passes(
        {
          progress: (done, of, words) => {
            if (signal.aborted) return;
            const { state } = this;
            if (state.is === "ready") {
              this.set({ ...state, rest: `${words}: ${done} of ${of} passes `, more: true });
            } else if (state.is === "loading") this.set({ is: "loading", done, of, words });
          },
          cost: (row, cost) => {
            if (!this.passes) early.push([row, cost]);
            else {
              put(this.passes, row, cost);
              this.set(this.state);
            }
          },
          ended: (failed) => {
            ended = failed;
            if (this.state.is === "ready") this.set({ ...this.state, rest: failed, more: false });
          },
        },
        signal,
      );
      if (signal.aborted) return;
      const passes = await decodePasses(bytes);
      if (signal.aborted) return;
      for (const [row, cost] of early) put(passes, row, cost);
      this.set({ is: "ready", passes, rest: ended ?? "", more: false });
    } catch (error) {
      if (!signal.aborted) this.set({ is: "failed", message: (error as Error).message });
    }
  }

  /** Whether `measure` can be asked. */
  get measurable(): boolean {
    return this.host.measurePasses !== undefined;
  }
  /** Whether the compile is being measured, and why that failed; "" if it did not. */
  measuring = false;
  notMeasured = "";

  /** Asks for the time of each pass, and calls back when it is there. */
  async measure(signal: AbortSignal): Promise<void> {
    const { passes } = this;
    if (!passes || this.measuring || !this.host.measurePasses) return;
    this.measuring = true;
    this.notMeasured = "";
    this.set(this.state);
    try {
      passes.times = await this.host.measurePasses(signal);
    } catch (error) {
      this.notMeasured = (error as Error).message;
    }
    this.measuring = false;
    if (!signal.aborted) this.set(this.state);
  }

  /** Stops the work: before the block has arrived, all of it; after that, the remaining figures. */
  cancel(): void {
    this.running?.abort();
    if (this.state.is === "ready") this.set({ ...this.state, rest: "", more: false });
    else this.set({ is: "failed", message: "Cancelled." });
  }
}
