/** Measures text as the browser will draw it. */
import { TextMetrics } from "../../graph/metrics.ts";

/** Character widths of the font that the browser actually uses. */
export function measured(font: string): TextMetrics {
  const context = document.createElement("canvas").getContext("2d");
  if (!context) return new TextMetrics();
  const widths = (weight: string): number[] => {
    context.font = `${weight} 100px ${font}`;
    return Array.from({ length: 95 }, (_, k) => {
      return context.measureText(String.fromCharCode(k + 32)).width;
    });
  };
  return new TextMetrics(widths("400"), widths("600"));
}
