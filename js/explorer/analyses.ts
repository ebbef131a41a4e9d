/** Analyses, which take longer than the first picture: requested once that is shown. */
import type { ViewModel } from "../base/model.ts";
import { decodeAnalyses } from "../base/model.ts";
import type { WhenReleased } from "../base/press.ts";
import { costsOf } from "../state/cost/costs.ts";
import type { Store } from "../state/store.ts";
import type { Host } from "../view.ts";

interface Parts {
  model: ViewModel;
  store: Store;
  host: Host;
  whenReleased: WhenReleased;
  /** Writes into the status line. */
  note(words: string): void;
  /** Called when the model has more columns, or when it turned out that it gets none. */
  extended(): void;
}

export class Analyses {
  /** The chip that the options named when they were last looked at. */
  private hardware: string | null = null;

  constructor(private readonly parts: Parts) {
    const { store, whenReleased } = parts;
    // Panels are redrawn if the chip is changed from outside rather than by the Cost panel,
    // which sets the chip first.
    store.on("options", () => {
      if (!this.useHardware()) return;
      whenReleased(() => {
        store.extended();
        store.repaint();
      });
    });
  }

  async request(signal: AbortSignal): Promise<void> {
    const { model, host, note, whenReleased } = this.parts;
    note("Computing cost, memory and collectives…");
    try {
      const bytes = await host.analyses?.(signal);
      const block = bytes ? await decodeAnalyses(bytes) : null;
      if (signal.aborted) return;
      note(block ? "" : "Cost, memory and collectives were not saved with this view.");
      if (block) model.extend(block);
    } catch (error) {
      if (signal.aborted) return;
      note(`No cost, memory and collectives: ${(error as Error).message}`);
    }
    whenReleased(() => {
      this.useHardware();
      this.parts.extended();
    });
  }
  /** Chooses the chip that the options name, once there are costs; returns whether it changed. */
  private useHardware(): boolean {
    const { model, store, note } = this.parts;
    const wanted = store.get("options").hardware ?? null;
    const costs = costsOf(model);
    if (!costs || wanted === this.hardware) return false;
    this.hardware = wanted;
    if (wanted !== null && wanted === costs.chip?.id) return false;
    const { chip } = costs;
    if (!costs.choose(wanted)) {
      const on = costs.chip ? `time is modelled on ${costs.chip.label}` : "no time is modelled";
      note(`Unknown chip ${wanted}; ${on}.`);
    }
    return costs.chip !== chip;
  }
}
