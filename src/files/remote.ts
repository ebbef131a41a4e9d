/**
 * The server's answer as a promise. It is a stream of frames (python/hloscope/lab/frames.py):
 *
 *     kind (1 byte) | length (u32, little-endian) | payload
 *
 * P progress, V view, A analyses, F figures on another chip, T text, S stages, I modules, H page, K passes, C costs of passes,
 * E error.
 */
import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";

export interface Fault {
  message: string;
  line: number | null;
  column: number | null;
  /** Lines of the file around the offending one: [1-based number, text]. */
  excerpt: [number, string][];
}

/** The file could not be read, or the server refused. */
export class ReadFault extends Error {
  constructor(readonly fault: Fault) {
    super(fault.message);
  }
}

export interface Progress {
  stage: string;
  fraction: number | null;
  /** Pieces done and their total, if they are counted. */
  done?: number;
  of?: number;
}

type PassRequest = "passes" | "pass_costs";

export interface Request {
  what: "view" | "analyses" | "chip" | "text" | "stages" | "list" | "html" | "diff" | PassRequest;
  path: string;
  /** The second file of a diff. */
  other?: string;
  module?: string;
  /** The module of the second file. */
  otherModule?: string;
  /** Id of the chip on which to model time; "" or absent: the capture's own. That of "chip". */
  hardware?: string;
  /** Of the previous answer; null is returned if the file is unchanged. */
  etag?: string;
  signal?: AbortSignal;
  progress?: (progress: Progress) => void;
}

export interface Answer {
  bytes: Uint8Array;
  etag: string;
}

function plainFault(message: string): ReadFault {
  return new ReadFault({ message, line: null, column: null, excerpt: [] });
}

async function refusal(response: Response): Promise<ReadFault> {
  let message = "";
  try {
    message = (await response.json()).message ?? "";
  } catch {
    // not JSON: from a proxy, or the server extension is missing
  }
  if (!message && response.status === 404) {
    message = "The hloscope server extension is not running: jupyter server extension list";
  }
  return plainFault(message || `The server answered ${response.status} ${response.statusText}`);
}

/** Collects the pieces of a stream and cuts frames off its front. */
class Frames {
  private pieces: Uint8Array[] = [];
  private size = 0;

  push(piece: Uint8Array): void {
    this.pieces.push(piece);
    this.size += piece.length;
  }

  private peek(count: number): Uint8Array | null {
    if (this.size < count) return null;
    if (this.pieces[0].length < count) {
      const all = new Uint8Array(this.size);
      let at = 0;
      for (const piece of this.pieces) {
        all.set(piece, at);
        at += piece.length;
      }
      this.pieces = [all];
    }
    return this.pieces[0].subarray(0, count);
  }

  next(): { kind: string; payload: Uint8Array } | null {
    const head = this.peek(5);
    if (!head) return null;
    const length = new DataView(head.buffer, head.byteOffset, 5).getUint32(1, true);
    const frame = this.peek(5 + length);
    if (!frame) return null;
    this.size -= 5 + length;
    this.pieces[0] = this.pieces[0].subarray(5 + length);
    return { kind: String.fromCharCode(frame[0]), payload: frame.slice(5) };
  }
}

const RESULT: Record<Request["what"], string> = {
  view: "V",
  analyses: "A",
  chip: "F",
  stages: "S",
  text: "T",
  list: "I",
  html: "H",
  diff: "H",
  passes: "K",
  pass_costs: "C",
};

/** Null if `etag` is still valid. Rejects with `ReadFault`, or `AbortError` when cancelled. */
export async function ask(
  settings: ServerConnection.ISettings,
  request: Request,
): Promise<Answer | null> {
  const query: Record<string, string> = { path: request.path };
  if (request.other !== undefined) query.other = request.other;
  if (request.module !== undefined) query.module = request.module;
  if (request.otherModule !== undefined) query.other_module = request.otherModule;
  if (request.hardware) query.hardware = request.hardware;
  const url =
    URLExt.join(settings.baseUrl, "hloscope", "api", request.what) +
    URLExt.objectToQueryString(query);
  const headers: Record<string, string> = request.etag ? { "If-None-Match": request.etag } : {};
  const response = await ServerConnection.makeRequest(
    url,
    { signal: request.signal, headers, cache: "no-store" },
    settings,
  );
  if (response.status === 304) return null;
  if (!response.ok || !response.body) throw await refusal(response);
  const frames = new Frames();
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw plainFault("The connection to the server ended early.");
    frames.push(value);
    for (let frame = frames.next(); frame; frame = frames.next()) {
      if (frame.kind === RESULT[request.what]) {
        return { bytes: frame.payload, etag: response.headers.get("ETag") ?? "" };
      }
      const value = JSON.parse(new TextDecoder().decode(frame.payload));
      if (frame.kind === "E") throw new ReadFault({ excerpt: [], ...value });
      if (frame.kind === "P") request.progress?.(value);
    }
  }
}

/** The modules of one file; empty if it contains a single one. */
export interface FileModules {
  modules: { name: string; instructions: number | null }[];
  /** Position of the module that is shown. */
  module: number;
}

export async function modulesOf(
  settings: ServerConnection.ISettings,
  request: Omit<Request, "what">,
): Promise<FileModules> {
  const answer = await ask(settings, { ...request, what: "list" });
  return JSON.parse(new TextDecoder().decode(answer!.bytes));
}

/** The modules and stages of a dump folder, in the order XLA made them. */
export interface FolderFiles {
  files: { file: string; name: string; index: number; stage: string; bytes: number }[];
  chosen: number;
}

export async function folder(
  settings: ServerConnection.ISettings,
  path: string,
): Promise<FolderFiles> {
  const url =
    URLExt.join(settings.baseUrl, "hloscope", "api", "folder") +
    URLExt.objectToQueryString({ path });
  const response = await ServerConnection.makeRequest(url, { cache: "no-store" }, settings);
  if (!response.ok) throw await refusal(response);
  return response.json();
}
