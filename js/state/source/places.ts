/** Where an instruction comes from: the innermost line outside libraries. */
import { shortLine } from "../../base/lines.ts";
import type { ViewModel } from "../../base/model.ts";
import { perModel } from "../members.ts";
import { frameOf, inferredLine } from "./lines.ts";

export interface Place {
  text: string; // "/home/me/train.py:31"
  short: string; // "train.py:31"
  inferred: boolean;
  why: string; // "layout for %dot.89" if it is inferred, else ""
}

const framesOf = perModel((model) => {
  const library = new Set<string>();
  for (const f of model.header.extras.source?.files ?? []) if (f.library) library.add(f.file);
  return { library, places: new Map<number, string>() };
});

const textsOf = perModel((model) => {
  const texts = new Map<string, string[]>();
  for (const f of model.header.extras.source?.files ?? []) {
    if (f.text) texts.set(f.file, f.text.split(/\r?\n/));
  }
  return texts;
});

/** The text of line "dir/train.py:31" if the View has the file, else "". */
export function codeOf(model: ViewModel, line: string): string {
  const at = line.lastIndexOf(":");
  const lines = textsOf(model).get(line.slice(0, at));
  return lines?.[Number(line.slice(at + 1)) - 1]?.trim() ?? "";
}

export { shortLine };

/** "dir/train.py:31" for a frame: in the user's own code rather than a library; "" without a line. */
export function lineOfFrame(model: ViewModel, start: number): string {
  const { library, places } = framesOf(model);
  const known = places.get(start);
  if (known !== undefined) return known;
  const { frame, strings } = model;
  let found = "";
  for (let f = start, depth = 0; f >= 0 && depth < 200; f = frame.parent[f], depth++) {
    const file = strings.get(frame.file[f]);
    found ||= `${file}:${frame.line[f]}`;
    if (!library.has(file)) {
      found = `${file}:${frame.line[f]}`;
      break;
    }
  }
  places.set(start, found);
  return found;
}

export function placeOf(model: ViewModel, i: number): Place | null {
  const text = lineOfFrame(model, frameOf(model, i));
  if (!text) return null;
  const guess = inferredLine(model, i);
  return {
    text,
    short: shortLine(text),
    inferred: guess !== null,
    why: guess ? `${guess.words} %${model.name(guess.via)}` : "",
  };
}
