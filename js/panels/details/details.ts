/** Details of what is selected; an overview of the module when nothing is. */

import { fill } from "../../base/dom.ts";
import type { Panel } from "../panel.ts";
import { groupDetails, severalDetails } from "./group.ts";
import { instructionDetails } from "./instruction.ts";
import { overview } from "./overview.ts";

export const details: Panel = {
  id: "details",
  title: "Details",
  available: () => true,
  render(element, ctx) {
    // Aborted when the selection moves on, so late text never lands in the wrong place.
    let current: AbortController | null = null;
    const update = () => {
      current?.abort();
      current = new AbortController();
      const selection = ctx.store.get("selection");
      const inner = { ...ctx, signal: current.signal };
      const several = ctx.store.get("several");
      if (several.length > 1) fill(element, ...severalDetails(inner, several));
      else if (selection.kind === "none") fill(element, ...overview(inner));
      else if (selection.kind === "instruction") {
        fill(element, ...instructionDetails(inner, selection.index));
      } else fill(element, ...groupDetails(inner, selection));
      element.scrollTop = 0;
    };
    ctx.store.on("selection", update, ctx.signal);
    ctx.store.on("several", update, ctx.signal);
    ctx.store.on("analyses", update, ctx.signal);
    ctx.signal.addEventListener("abort", () => current?.abort(), { once: true });
    update();
  },
};
