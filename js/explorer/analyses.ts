/**
 * Analyses, which take longer than the first picture: requested once that is shown. And the figures
 * of another chip, which Python worked out too: a saved page has those of likely chips, a kernel
 * makes them when asked.
 */
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
  signal: AbortSignal;
  whenReleased: WhenReleased;
  /** Writes into the status line. */
  note(words: string): void;
  /** Called when the model has more columns, or when it turned out that it gets none. */
  extended(): void;
}

export class Analyses {
  /** The chip that the options named when they were last looked at. */
  private wanted: string | null = null;
  /** Ends the request for a chip that is no longer wanted. */
  private asking = new AbortController();

  constructor(private readonly parts: Parts) {
    parts.store.on("options", () => void this.useHardware());
    parts.signal.addEventListener("abort", () => this.asking.abort(), { once: true });
  }

  async request(): Promise<void> {
    const { model, host, note, whenReleased, signal } = this.parts;
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
      this.parts.extended();
      void this.useHardware();
    });
  }

  /** Shows the figures of the chip that the options name, once there are costs. */
  private async useHardware(): Promise<void> {
    const { model, store, host, note } = this.parts;
    const wanted = store.get("options").hardware ?? null;
    const costs = costsOf(model);
    if (!costs || wanted === this.wanted) return;
    this.wanted = wanted;
    this.asking.abort();
    const own = model.ownChip;
    if (wanted === null || wanted === own) {
      if (model.shownChip !== own) this.show(null);
      return;
    }
    if (wanted === model.shownChip) return;
    const label = costs.extras.hardware.find(({ id }) => id === wanted)?.label;
    this.asking = new AbortController();
    const { signal } = this.asking;
    try {
      if (!label) throw new Error(`unknown chip ${wanted}`);
      if (!host.chip || (host.chips && !host.chips.includes(wanted))) {
        throw new Error(`the figures on ${label} were not saved with this view`);
      }
      note(`Working out the figures on ${label}…`);
      const block = await decodeAnalyses(await host.chip(wanted, signal));
      if (signal.aborted) return;
      note("");
      this.show(block);
    } catch (error) {
      if (!signal.aborted) this.refuse(error as Error);
    }
  }

  private refuse(error: Error): void {
    const chip = costsOf(this.parts.model)?.chip;
    const now = chip ? `time is modelled on ${chip.label}` : "no time is modelled";
    this.parts.note(`${sentence(error.message)}; ${now}.`);
  }

  private show(block: Awaited<ReturnType<typeof decodeAnalyses>> | null): void {
    const { model, store, whenReleased } = this.parts;
    whenReleased(() => {
      const trips = costsOf(model)?.allTrips ?? [];
      try {
        model.useChip(block);
      } catch (error) {
        this.refuse(error as Error);
      }
      costsOf(model)?.setAllTrips(trips);
      this.parts.extended();
      store.repaint();
    });
  }
}

const sentence = (words: string) =>
  words.charAt(0).toUpperCase() + words.slice(1).replace(/\.$/, "");
