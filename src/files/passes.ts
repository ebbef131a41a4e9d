/**
 * The passes of a document in a dump folder, computed by the server on request.
 *
 *     folder listing ──▶ is there a dump of every pass of this module, and how large?
 *     "passes"      ──▶ progress …, then the block that the explorer draws
 *     "pass_costs"  ──▶ progress …, then FLOPs, bytes and peak of every pass
 */
import type { ServerConnection } from "@jupyterlab/services";
import type { Host, PassCost } from "../../js/view.ts";
import { ask, type FolderFiles, type Progress } from "./remote.ts";

/** Larger dumps of passes are read only on request, as that takes seconds. */
const AT_ONCE_BYTES = 30e6;
const PASS = /^\d{4,6}\./;

type PassHost = Pick<Host, "passes" | "passesPrice">;

/** The host's methods for passes; {} if the folder has none of this file's module. */
export function passesOf(
  settings: ServerConnection.ISettings,
  path: string,
  { files }: FolderFiles,
): PassHost {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const own = files.find((f) => f.file === name);
  const passes = files.filter(
    (f) => own && f.name === own.name && f.index === own.index && f.stage,
  );
  if (!passes.some((f) => PASS.test(f.stage))) return {};
  const bytes = passes.reduce((sum, f) => sum + f.bytes, 0);
  const megabytes = Math.round(bytes / 1e6).toLocaleString("en-US");
  return {
    passesPrice:
      bytes > AT_ONCE_BYTES
        ? `The server reads ${passes.length} dumps of ${megabytes} MB together for this.`
        : "",
    async passes(events, signal) {
      const progress = ({ stage, done = 0, of = 0 }: Progress) => events.progress(done, of, stage);
      const answer = await ask(settings, { what: "passes", path, signal, progress });
      void (async () => {
        try {
          const costs = await ask(settings, { what: "pass_costs", path, signal, progress });
          const rows: [number, PassCost][] = JSON.parse(new TextDecoder().decode(costs!.bytes));
          for (const [row, cost] of rows) events.cost(row, cost);
          events.ended("");
        } catch (error) {
          const { message } = error as Error;
          if (!signal.aborted) events.ended(`No FLOPs, bytes and peak: ${message}`);
        }
      })();
      return answer!.bytes;
    },
  };
}
