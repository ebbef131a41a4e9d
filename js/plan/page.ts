/** A saved planning page: one script and one block of JSON, with no network access. */
import { mountPlan } from "./mount.ts";
import type { PlanView } from "./view.ts";

export function start(): void {
  const element = document.getElementById("hloscope");
  const data = document.getElementById("hloscope-plan")?.textContent;
  if (!element || !data) return;
  const view = JSON.parse(data) as PlanView;
  element.replaceChildren();
  mountPlan(element, { view }, true);
}
