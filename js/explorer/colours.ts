/** The chosen colouring on the graph, the legend and the strip. */
import type { ViewModel } from "../base/model.ts";
import { paintInstructions } from "../draw/coloring.ts";
import type { GraphPane, GraphTheme } from "../draw/graph-pane.ts";
import { legend } from "../panels/chrome/legend.ts";
import type { Strip } from "../panels/chrome/strip.ts";
import { COLORINGS } from "../panels/colorings/colorings.ts";
import { ownColorings } from "../panels/colorings/own.ts";
import type { Coloring, Paint } from "../panels/panel.ts";
import type { Store } from "../state/store.ts";
import { attempt } from "./attempt.ts";

/** The colouring that every View has. */
const FALLBACK = "family";

interface Parts {
  root: HTMLElement;
  model: ViewModel;
  store: Store;
  pane: GraphPane;
  /** The colourings that the View has data for. */
  available(): readonly Coloring[];
  /** Where the legend goes. */
  legend: HTMLElement;
  strip: Strip | null;
  theme(): GraphTheme;
  /** Marks edges, and adds the marks to the legend. */
  mark(): void;
}

/** The colourings that the View has data for. */
export const availableColorings = (model: ViewModel): readonly Coloring[] =>
  [...COLORINGS, ...ownColorings(model)].filter((coloring) =>
    attempt(`colouring ${coloring.id}`, () => coloring.available(model)),
  );

export class Colours {
  /** Id of the one that is shown, which may differ from the option while that is not available. */
  private shown = "";
  /** The option when it was last looked at. */
  private wanted: string;

  constructor(private readonly parts: Parts) {
    const { store } = parts;
    this.wanted = store.get("options").colorBy;
    store.on("options", () => {
      const { colorBy } = store.get("options");
      if (colorBy === this.wanted) parts.mark();
      else {
        this.wanted = colorBy;
        this.paint();
      }
    });
    store.on("paint", () => this.paint());
  }

  /** To be called when it is known which colourings are available and which are not. */
  settle(): void {
    const { available, store } = this.parts;
    const { colorBy } = store.get("options");
    const isAvailable = available().some((coloring) => coloring.id === colorBy);
    if (!isAvailable) store.setOptions({ colorBy: FALLBACK });
    else if (colorBy !== this.shown) this.paint();
  }

  paint(): void {
    const { root, model, store, theme } = this.parts;
    const { colorBy } = store.get("options");
    const available = this.parts.available();
    const coloring = available.find(({ id }) => id === colorBy) ?? available[0];
    this.shown = coloring.id;
    const { families } = theme();
    model.header.families.forEach(({ id }, k) => {
      root.style.setProperty(`--hlo-family-${k}`, families[id] ?? families.other);
    });
    attempt(`colouring ${coloring.id}`, () => this.apply(coloring));
    this.parts.mark();
  }
  private apply(coloring: Coloring): void {
    const { model, strip, pane } = this.parts;
    const paint = paintOf(model, coloring, this.parts.theme());
    legend(this.parts.legend, model, paint, (k) => this.highlightEntry(paint, k));
    strip?.setPaint(paint);
    pane.setColoring(coloring);
  }
  /** Highlights the instructions of an entry of the legend, or ends that. */
  private highlightEntry({ coloring, index }: Paint, entry: number): void {
    const { model, store } = this.parts;
    const reason = coloring.categories?.(model)[entry] ?? coloring.rest ?? "unknown";
    if (store.get("highlight")?.reason === reason) {
      store.highlight(null);
      return;
    }
    const instructions = new Set<number>();
    for (let i = 0; i < model.instruction.count; i++) {
      if (index[i] === entry) instructions.add(i);
    }
    store.highlight({ instructions, reason });
  }
}

function paintOf(model: ViewModel, coloring: Coloring, theme: GraphTheme): Paint {
  const { colors, legend: steps } = paintInstructions(model, coloring, theme);
  const isRange = colors.numeric && steps.length > 0;
  return {
    coloring,
    index: colors.index,
    colors: colors.palette,
    numeric: colors.numeric,
    range: isRange ? [steps[0].value ?? 0, steps[steps.length - 1].value ?? 0] : null,
    clipped: steps[0]?.atMost ?? false,
  };
}
