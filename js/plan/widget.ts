/**
 * Planning as an anywidget. `_view` is the PlanView as JSON; {kind: "ask", id, what, values} goes
 * out, {kind: "answer", id, view?, html?} or {kind: "error", id, message} comes back.
 */
import { mountPlan } from "./mount.ts";
import type { Answer, PlanView } from "./view.ts";

interface Model {
  get(name: string): unknown;
  on(event: string, callback: (...args: never[]) => void): void;
  off(event: string, callback: (...args: never[]) => void): void;
  send(content: unknown): void;
}

// Compiling a candidate to open it takes a while, but a dead kernel must not block for ever.
const ANSWER_TIMEOUT_MS = 180_000;
let asked = 0;

export function render({
  model,
  el,
  signal,
}: {
  model: Model;
  el: HTMLElement;
  signal?: AbortSignal;
}) {
  const element = document.createElement("div");
  el.append(element);
  const ask = (what: string, values: Record<string, unknown>) => {
    const id = ++asked;
    return new Promise<Answer>((resolve, reject) => {
      const done = () => {
        clearTimeout(timer);
        model.off("msg:custom", receive as never);
      };
      const receive = (reply: { id?: number; kind?: string; message?: string } & Answer) => {
        if (reply?.id !== id) return;
        done();
        if (reply.kind === "answer") resolve(reply);
        else reject(new Error(reply.message ?? "the kernel did not answer."));
      };
      const timer = setTimeout(() => {
        done();
        reject(new Error("no answer from the kernel; it may be busy or gone."));
      }, ANSWER_TIMEOUT_MS);
      model.on("msg:custom", receive as never);
      model.send({ kind: "ask", id, what, values });
    });
  };
  const view = JSON.parse(String(model.get("_view"))) as PlanView;
  const mounted = mountPlan(element, { view, ask: model.get("_answers") ? ask : undefined });
  const dispose = () => {
    mounted.dispose();
    element.remove();
  };
  signal?.addEventListener("abort", dispose, { once: true });
  return dispose;
}
