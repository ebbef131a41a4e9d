/** Asks a Python kernel for the value of an expression, without touching the user's cells. */
import type { Kernel } from "@jupyterlab/services";

interface Answer {
  status: string;
  data?: Record<string, unknown>;
  evalue?: string;
}

/**
 * The value of the expression: its JSON if it has one, else its text. Silent: history, output and
 * counter stay unchanged. Waits for cells that are already running. Null if there is no Python
 * kernel; rejects with Python's error message.
 */
export async function evaluate(
  kernel: Kernel.IKernelConnection | null | undefined,
  expression: string,
): Promise<unknown> {
  if (!kernel || (await kernel.info).language_info.name !== "python") return null;
  const future = kernel.requestExecute({
    code: "",
    silent: true,
    store_history: false,
    user_expressions: { answer: expression },
  });
  const { content } = await future.done;
  if (content.status !== "ok") return null;
  const { answer } = content.user_expressions as unknown as { answer?: Answer };
  if (answer?.status !== "ok") throw new Error(answer?.evalue || "the kernel did not answer");
  return answer.data?.["application/json"] ?? answer.data?.["text/plain"] ?? null;
}

/** A call into python/hloscope/show/shown.py; None if this kernel has shown no capture. */
function asked(call: string): string {
  return `(lambda m: m and m.${call})(__import__('sys').modules.get('hloscope.show.shown'))`;
}

/** Identifiers come from notebooks, which are untrusted: only well-formed ones reach the kernel. */
const ID = /^[0-9a-f]{12}$/;

export function isIdentifier(id: unknown): id is string {
  return typeof id === "string" && ID.test(id);
}

function call(name: string, ...ids: string[]): string {
  if (!ids.every(isIdentifier)) throw new Error("this output does not say which capture it shows");
  return asked(`${name}(${ids.map((id) => `'${id}'`).join(", ")})`);
}

type MaybeKernel = Kernel.IKernelConnection | null | undefined;

/** Captures that are alive in the kernel: identifier → name of the variable, or "". */
export async function liveCaptures(kernel: MaybeKernel): Promise<Map<string, string>> {
  const found = await evaluate(kernel, call("listing"));
  return new Map(found && typeof found === "object" ? Object.entries(found) : []);
}

async function page(kernel: MaybeKernel, expression: string): Promise<string> {
  const found = await evaluate(kernel, expression);
  if (typeof found !== "string" || found === "None") {
    throw new Error("The kernel no longer has it: run its cell again.");
  }
  return found;
}

/** The capture as one offline page. */
export function capturePage(kernel: MaybeKernel, id: string): Promise<string> {
  return page(kernel, call("page", id));
}

/** What differs between two captures, as a page. */
export function comparisonPage(kernel: MaybeKernel, id: string, other: string): Promise<string> {
  return page(kernel, call("comparison", id, other));
}
