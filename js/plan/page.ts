/** A saved planning page: one script and one block of JSON, with no network access. */
import { mountPlan } from "./mount.ts";
import type { PlanView } from "./view.ts";

/** The view, or null where its text is cut off; `mountPlan` checks what it is. */
function parsed(data: string): PlanView {
  try {
    return JSON.parse(data) as PlanView;
  } catch {
    return null as unknown as PlanView;
  }
}

export function start(): void {
  const element = document.getElementById("hloscope");
  const data = document.getElementById("hloscope-plan")?.textContent;
  if (!element || !data) return;
  element.replaceChildren();
  mountPlan(element, { view: parsed(data) }, true);
}
