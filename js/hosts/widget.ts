/**
 * The explorer as an anywidget: traits in, selection and options out.
 *
 *     _view      Bytes   the View block           selection  dict  kind, index, name (both ways)
 *     _analyses  Bytes   the analyses block, if it is small
 *     _options   dict    Options (both ways)
 *     _place     str     what is open, in view and selected; kept with the notebook
 *     _bookmarks list    name, note, place
 *     _proves    bool    whether the kernel can try what findings advise
 *     _measures  bool    whether the kernel can measure the passes
 *     _passes    str     "" none, "kept", or "compile": available after compiling once more
 *
 * Other blocks come on request: {kind: "text" | "analyses" | "stages", id} goes out, or
 * {kind: "chip", chip, id}; the same with
 * one buffer, or {kind: "error", id, message}, comes back.
 */
import { type Kept, tellKept } from "../base/kept.ts";
import { mount } from "../mount.ts";
import type {
  Bookmark,
  Findings,
  Host,
  Options,
  PassCost,
  PassTimesExtras,
  Selection,
} from "../view.ts";

/** The part of anywidget's model that is used here. */
interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, callback: (...args: never[]) => void): void;
  off(event: string, callback: (...args: never[]) => void): void;
  send(content: unknown): void;
}

interface Reply {
  kind?: string;
  id?: number;
  message?: string;
}

const ANSWER_TIMEOUT_MS = 60_000;
/** Between two messages of a job: compiling a large program may take this long. */
const COMPILE_TIMEOUT_MS = 1_800_000;
let asked = 0;

const toBytes = (data: DataView | ArrayBuffer | Uint8Array): Uint8Array =>
  data instanceof ArrayBuffer
    ? new Uint8Array(data)
    : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

function askFor(
  kind: "text" | "analyses" | "stages" | "chip",
  model: Model,
  signal: AbortSignal,
  more: { chip?: string } = {},
): Promise<Uint8Array> {
  const id = ++asked;
  return new Promise((resolve, reject) => {
    const done = () => {
      clearTimeout(timer);
      model.off("msg:custom", receive as never);
      signal.removeEventListener("abort", stop);
    };
    const fail = (message: string) => {
      done();
      reject(new Error(message));
    };
    const receive = (reply: Reply, buffers?: DataView[]) => {
      if (reply?.id !== id) return;
      if (reply.kind === kind && buffers?.length) {
        done();
        resolve(toBytes(buffers[0]));
      } else fail(reply.message ?? "the kernel answered without the data.");
    };
    const stop = () => fail("closed.");
    const timer = setTimeout(
      () => fail("no answer from the kernel; it may be busy or gone. Try again when it is idle."),
      ANSWER_TIMEOUT_MS,
    );
    signal.addEventListener("abort", stop, { once: true });
    model.on("msg:custom", receive as never);
    model.send({ kind, id, ...more });
  });
}

interface PassReply extends Reply {
  done?: number;
  of?: number;
  words?: string;
  row?: number;
  cost?: PassCost;
}

/** The job that computes the passes in the kernel; see pass_job.py. */
function passesOf(model: Model): Pick<Host, "passes" | "passesPrice"> {
  const there = model.get("_passes");
  if (!there) return {};
  return {
    passesPrice: there === "compile" ? "This compiles the program once more." : "",
    passes: (events, signal) =>
      new Promise((resolve, reject) => {
        const id = ++asked;
        let timer = 0 as unknown as ReturnType<typeof setTimeout>;
        let block = false;
        const finish = (message: string) => {
          clearTimeout(timer);
          model.off("msg:custom", receive as never);
          signal.removeEventListener("abort", stop);
          if (block) events.ended(message);
          else reject(new Error(message));
        };
        const wait = (ms: number) => {
          clearTimeout(timer);
          timer = setTimeout(
            () => finish("no answer from the kernel; it may be busy or gone. Try again."),
            ms,
          );
        };
        const receive = (reply: PassReply, buffers?: DataView[]) => {
          if (reply?.id !== id) return;
          wait(COMPILE_TIMEOUT_MS);
          if (reply.kind === "progress") {
            events.progress(reply.done ?? 0, reply.of ?? 0, reply.words ?? "");
          } else if (reply.kind === "cost") events.cost(reply.row ?? -1, reply.cost ?? {});
          else if (reply.kind === "passes" && buffers?.length) {
            block = true;
            resolve(toBytes(buffers[0]));
          } else if (reply.kind === "done") finish("");
          else finish(reply.message ?? "the kernel answered without the data.");
        };
        const stop = () => {
          model.send({ kind: "cancel", id });
          finish("");
        };
        signal.addEventListener("abort", stop, { once: true });
        model.on("msg:custom", receive as never);
        model.send({ kind: "passes", id });
        wait(ANSWER_TIMEOUT_MS);
      }),
  };
}

/** The job that tries a finding's advice in the kernel; see proof_job.py. */
function proveOf(model: Model): Pick<Host, "prove"> {
  if (!model.get("_proves")) return {};
  return {
    prove: (finding, progress, signal) =>
      compiled(model, { kind: "prove", ...finding }, signal, (reply) => {
        if (reply.kind === "progress") progress(reply.words ?? "");
        return reply.findings;
      }),
  };
}

/** The job that measures how long each pass takes; see pass_job.py. */
function measureOf(model: Model): Pick<Host, "measurePasses"> {
  if (!model.get("_measures")) return {};
  return {
    measurePasses: (signal) => compiled(model, { kind: "measure" }, signal, (reply) => reply.times),
  };
}

/** The page of a change that was tried, which the kernel compiles once more; see proof_job.py. */
function triedOf(model: Model): Pick<Host, "tried"> {
  if (!model.get("_proves")) return {};
  return {
    tried: (proof, signal) =>
      compiled(model, { kind: "tried", ...proof }, signal, (reply, buffers) =>
        reply.kind === "page" && buffers?.length
          ? { page: toBytes(buffers[0]), findings: reply.findings }
          : undefined,
      ),
  };
}

interface CompiledReply extends Reply {
  words?: string;
  findings?: Findings;
  times?: PassTimesExtras;
}

/** A job of the kernel that compiles; `answer` is what a message brings, if it is the last one. */
function compiled<T>(
  model: Model,
  asks: { kind: string },
  signal: AbortSignal,
  answer: (reply: CompiledReply, buffers?: DataView[]) => T | undefined,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const id = ++asked;
    const finish = () => {
      clearTimeout(timer);
      model.off("msg:custom", receive as never);
      signal.removeEventListener("abort", stop);
    };
    const fail = (message: string) => {
      finish();
      reject(new Error(message));
    };
    const timer = setTimeout(
      () => fail("no answer from the kernel; it may be busy or gone. Try again."),
      COMPILE_TIMEOUT_MS,
    );
    const receive = (reply: CompiledReply, buffers?: DataView[]) => {
      if (reply?.id !== id) return;
      const found = answer(reply, buffers);
      if (found !== undefined) {
        finish();
        resolve(found);
      } else if (reply.kind !== "progress") {
        fail(reply.message ?? "the kernel answered without the data.");
      }
    };
    const stop = () => {
      model.send({ kind: "cancel", id });
      fail("cancelled");
    };
    signal.addEventListener("abort", stop, { once: true });
    model.on("msg:custom", receive as never);
    model.send({ ...asks, id });
  });
}

interface RenderProps {
  model: Model;
  el: HTMLElement;
  signal?: AbortSignal;
}

export function render({ model, el, signal }: RenderProps): () => void {
  const tell = (more: Partial<Kept> = {}) => {
    const bookmarks = (model.get("_bookmarks") ?? []) as Bookmark[];
    tellKept(el, { place: String(model.get("_place") ?? ""), bookmarks, ...more });
  };
  const onAnalyses = () => {
    const data = model.get("_analyses") as DataView | null;
    if (data?.byteLength) tell({ analyses: toBytes(data) });
  };
  const host: Host = {
    options: (model.get("_options") ?? {}) as Partial<Options>,
    async view() {
      const data = model.get("_view") as DataView | null;
      if (!data?.byteLength) throw new Error("The widget carries no data: run the cell again.");
      return toBytes(data);
    },
    async analyses(aborted) {
      const data = model.get("_analyses") as DataView | null;
      return data?.byteLength ? toBytes(data) : askFor("analyses", model, aborted);
    },
    chip: (id, aborted) => askFor("chip", model, aborted, { chip: id }),
    text: (aborted) => askFor("text", model, aborted),
    stages: (aborted) => askFor("stages", model, aborted),
    place: String(model.get("_place") ?? ""),
    bookmarks: (model.get("_bookmarks") ?? []) as Bookmark[],
    onPlace(place) {
      model.set("_place", place);
      model.save_changes();
      tell();
    },
    onBookmarks(all) {
      model.set("_bookmarks", all);
      model.save_changes();
      tell();
    },
    ...passesOf(model),
    ...measureOf(model),
    ...proveOf(model),
    ...triedOf(model),
    onSelect(selection) {
      if (same(model.get("selection") as Selection, selection)) return;
      model.set("selection", selection);
      model.save_changes();
    },
    onOptions(options) {
      // marimo's model immediately reports our own change back to us: stop here
      if (equal(model.get("_options") as Partial<Options>, options)) return;
      model.set("_options", options);
      model.save_changes();
    },
  };
  const element = document.createElement("div");
  el.append(element);
  const mounted = mount(element, host);
  const onSelection = () => {
    const selection = model.get("selection") as Selection | null;
    if (selection?.kind) mounted.select({ kind: selection.kind, index: selection.index });
  };
  const onOptions = () => mounted.setOptions((model.get("_options") ?? {}) as Partial<Options>);
  model.on("change:selection", onSelection as never);
  model.on("change:_options", onOptions as never);
  model.on("change:_analyses", onAnalyses as never);
  if ((model.get("selection") as Selection | null)?.kind !== "none") onSelection();
  const dispose = () => {
    model.off("change:selection", onSelection as never);
    model.off("change:_options", onOptions as never);
    model.off("change:_analyses", onAnalyses as never);
    mounted.dispose();
    element.remove();
  };
  signal?.addEventListener("abort", dispose, { once: true });
  return dispose;
}

const equal = (a: Partial<Options> | null, b: Options): boolean =>
  (Object.keys(b) as (keyof Options)[]).every((key) => a?.[key] === b[key]);

const same = (a: Selection | null, b: Selection) => a?.kind === b.kind && a.index === b.index;
