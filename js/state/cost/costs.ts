/**
 * The View's cost.* tables: what Python modelled, until the user edits the chip or a trip count.
 * From then on `what-if.ts` computes them; 100,000 instructions take a few milliseconds.
 */
import type { ViewModel } from "../../base/model.ts";
import type { Chip, CostExtras, Totals } from "../../view-extras.ts";
import { perModel } from "../members.ts";
import { type CostColumns, countRuns, model } from "./what-if.ts";

export { BOUNDS, COLLECTIVE, COPY, MEMORY, UNKNOWN } from "./what-if.ts";

export const copyOf = (chip: Chip): Chip => ({
  ...chip,
  matmul: [...chip.matmul],
  links: chip.links.map((link) => ({ ...link })),
});

export class Costs {
  readonly flops: Float64Array;
  readonly bytes: Float64Array;
  readonly unit: Uint8Array;
  readonly cycles: Float64Array | null;
  /** Executions, including trip counts set by hand. */
  runs: Float64Array;
  chip: Chip | null;
  /** Seconds of one execution; NaN unknown, 0 if it is not a unit. */
  seconds: Float64Array;
  bound: Uint8Array;
  /**
   * What each adds to the modelled step over all executions. The only seconds that add up: a
   * transfer or copy beside other work adds the time waited for it. NaN unknown.
   */
  step: Float64Array;
  /** Per transfer: seconds on the wire over all executions, and the seconds waited for it. */
  wire: Float64Array;
  waited: Float64Array;
  totals: Totals;
  readonly columns: CostColumns;
  private chipIsEdited = false;
  private byStart: Map<number, number[]> | null = null;
  private readonly knownRuns: Float64Array;
  private readonly trips: number[];
  private readonly listeners = new Set<() => void>();

  constructor(
    private readonly model: ViewModel,
    readonly extras: CostExtras,
  ) {
    const c = (name: string) => model.column<Float64Array>(`cost.${name}`);
    const t = (name: string): ArrayLike<number> => model.optional(`transfer.${name}`) ?? [];
    this.flops = c("flops");
    this.bytes = c("bytes");
    this.knownRuns = c("runs");
    this.unit = model.column("cost.unit");
    this.cycles = model.optional("cost.cycles");
    this.columns = {
      unit: this.unit,
      flops: this.flops,
      matmulFlops: c("matmul_flops"),
      transcendentals: c("transcendentals"),
      bytes: this.bytes,
      mainBytes: c("main_bytes"),
      fromHost: model.optional<Float64Array>("cost.from_host"),
      toHost: model.optional<Float64Array>("cost.to_host"),
      dtype: model.column<Uint8Array>("cost.dtype"),
      filled: (side) => this.filledOn(side),
      loop: model.optional<Int32Array>("cost.loop"),
      condition: model.optional<Uint8Array>("cost.condition"),
      transfer: {
        start: t("start"),
        done: t("done"),
        far: t("far"),
        bytes: t("bytes"),
        switchSteps: t("switch_steps"),
        switchBytes: t("switch_bytes"),
        torusSteps: t("torus_steps"),
        torusBytes: t("torus_bytes"),
        farSteps: t("far_steps"),
        farBytes: t("far_bytes"),
      },
      computation: model.instruction.computation,
      first: model.computation.first,
      size: model.computation.size,
    };
    this.trips = extras.unknownLoops.map(() => 1);
    this.runs = this.knownRuns;
    this.chip = this.find(extras.chosen);
    const n = model.instruction.count;
    this.seconds = model.optional("cost.seconds") ?? new Float64Array(n);
    this.step = model.optional("cost.step") ?? new Float64Array(n);
    const none = () => new Float64Array(this.columns.transfer.start.length);
    this.wire = model.optional("transfer.seconds") ?? none();
    this.waited = model.optional("transfer.waited") ?? none();
    this.bound = model.optional("cost.bound") ?? new Uint8Array(n);
    this.totals = extras.totals;
  }
  private find(id: string | null): Chip | null {
    return this.extras.hardware.find((h) => h.id === id) ?? null;
  }
  /**
   * Whether the user edited the chip's figures or a trip count: then what Python worked out
   * (headline, findings, timeline) is of the published figures still.
   */
  get isEdited(): boolean {
    return this.chipIsEdited || this.trips.some((n) => n !== 1);
  }
  /** What branches of conditionals leave open; edited, not of seconds: Python's were of other ones. */
  get ranges(): CostExtras["ranges"] {
    const { seconds, ...others } = this.extras.ranges;
    return this.isEdited || !seconds ? others : { ...others, seconds };
  }
  get allTrips(): readonly number[] {
    return this.trips;
  }
  /** Sets the trip counts of all of `extras.unknownLoops`. */
  setAllTrips(trips: readonly number[]): void {
    if (trips.length !== this.trips.length || trips.every((n, k) => n === this.trips[k])) return;
    this.trips.splice(0, trips.length, ...trips);
    this.edited();
  }
  on(listener: () => void, signal: AbortSignal): void {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener), { once: true });
  }
  /** Sets other figures of the chip; the published ones where they are the same again. */
  setChip(chip: Chip): void {
    this.chip = chip;
    this.chipIsEdited = JSON.stringify(chip) !== JSON.stringify(this.find(this.extras.chosen));
    this.edited();
  }
  /** Sets the trip count of a row of `extras.unknownLoops`. */
  setTrips(row: number, count: number): void {
    this.trips[row] = count;
    this.edited();
  }
  tripsOf(row: number): number {
    return this.trips[row];
  }
  loopName(row: number): string {
    return this.model.name(this.extras.unknownLoops[row].instruction);
  }
  /** The View's `filled` table on a chip: FLOPs with which products occupy its matrix unit. */
  private filledOn(side: number | null | undefined): ArrayLike<number> {
    const rows = this.model.optional<Uint32Array>("filled.instruction");
    const flops = this.model.optional<Float64Array>("filled.flops");
    const { matmulFlops } = this.columns;
    if (typeof side !== "number" || !rows || !flops) return matmulFlops;
    const filled = Float64Array.from(matmulFlops);
    const sides = this.extras.sides ?? 1;
    rows.forEach((i, k) => {
      filled[i] = flops[k * sides + side];
    });
    return filled;
  }
  private edited(): void {
    const { columns, extras, knownRuns, trips, chip } = this;
    this.runs = countRuns(columns, extras.unknownLoops, knownRuns, trips);
    Object.assign(this, model(columns, extras.reaches, this.runs, chip));
    for (const listener of [...this.listeners]) listener();
  }

  /** Seconds on the wire of transfers that start at the given instructions, and those waited for. */
  transferTime(starts: ArrayLike<number>): { wire: number; waited: number } {
    if (!this.byStart) {
      this.byStart = new Map();
      const { start } = this.columns.transfer;
      for (let k = 0; k < start.length; k++) {
        const list = this.byStart.get(start[k]);
        if (list) list.push(k);
        else this.byStart.set(start[k], [k]);
      }
    }
    let wire = 0;
    let waited = 0;
    for (let n = 0; n < starts.length; n++) {
      for (const k of this.byStart.get(starts[n]) ?? []) {
        wire += this.wire[k];
        waited += this.waited[k];
      }
    }
    return { wire, waited };
  }
  /** Wire bytes of each instruction over all executions. */
  get wireBytes(): Float64Array {
    const out = new Float64Array(this.seconds.length);
    const { start, bytes } = this.columns.transfer;
    // Assume the branches that send most; they need not be those that do the most work.
    const most = this.model.optional<Float64Array>("transfer.runs");
    for (let k = 0; k < start.length; k++) {
      const i = start[k];
      const edited = most && this.knownRuns[i] > 0 ? this.runs[i] / this.knownRuns[i] : 1;
      out[i] += bytes[k] * (most ? most[k] * edited : this.runs[i]);
    }
    return out;
  }
}

/** The costs of a View, or null when it has none. */
export const costsOf = perModel((model) => {
  const { cost } = model.header.extras;
  return cost && model.optional("cost.flops") ? new Costs(model, cost) : null;
});
