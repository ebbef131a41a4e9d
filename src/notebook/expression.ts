/** The Python expression that "Explore HLO" applies to, and the cell that shows it. */

const NAME = /[\p{L}_][\p{L}\p{N}_]*(?:\.[\p{L}_][\p{L}\p{N}_]*)*/gu;
const CLOSES: Record<string, string> = { "(": ")", "[": "]", "{": "}" };

export interface Found {
  /** The call, or just the dotted name. */
  text: string;
  isCall: boolean;
  /** Whether it is the name in its own definition. */
  isDefinition: boolean;
}

/**
 * The call whose function name is at the offset, or just the name:
 *
 *     y = jax.jit(step)(params, batch)      at `jit`   →  jax.jit(step)(params, batch)
 *                                           at `batch` →  batch
 */
export function expressionAt(source: string, offset: number): Found | null {
  for (const match of source.matchAll(NAME)) {
    const begin = match.index;
    let end = begin + match[0].length;
    if (offset < begin || offset > end) continue;
    if (inStringOrComment(source, begin)) return null;
    const isDefinition = /\b(?:def|class)\s+$/.test(source.slice(0, begin));
    let isCall = false;
    while (!isDefinition && source[end] === "(") {
      const close = closing(source, end);
      if (close < 0) return null;
      end = close + 1;
      isCall = true;
    }
    return { text: source.slice(begin, end), isCall, isDefinition };
  }
  return null;
}

/** Offset just after a string or comment that begins at `from`; `from` itself if none does. */
function skip(source: string, from: number): number {
  if (source[from] === "#") {
    const end = source.indexOf("\n", from);
    return end < 0 ? source.length : end;
  }
  const quote = /^(?:"""|'''|"|')/.exec(source.slice(from, from + 3))?.[0];
  if (!quote) return from;
  for (let at = from + quote.length; at < source.length; at++) {
    if (source[at] === "\\") at += 1;
    else if (source.startsWith(quote, at)) return at + quote.length;
  }
  return source.length;
}

function inStringOrComment(source: string, offset: number): boolean {
  for (let at = 0; at < offset; ) {
    const next = skip(source, at);
    if (next > offset) return true;
    at = next > at ? next : at + 1;
  }
  return false;
}

/** Offset of the bracket that closes the one at `from`, or -1. */
function closing(source: string, from: number): number {
  const open: string[] = [];
  for (let at = from; at < source.length; ) {
    const next = skip(source, at);
    if (next > at) {
      at = next;
      continue;
    }
    const char = source[at];
    if (char in CLOSES) open.push(CLOSES[char]);
    else if (char === open[open.length - 1]) {
      open.pop();
      if (!open.length) return at;
    }
    at += 1;
  }
  return -1;
}

/** The line magic for an expression, or null. `options` go before the expression. */
export function lineFor(expression: string, options = ""): string | null {
  // join lines: inside brackets Python ignores line breaks, but a magic ends at the first one
  const joined = expression
    .trim()
    .replace(/#[^\n"']*$/gm, "")
    .replace(/\s*\n\s*/g, " ")
    .trim();
  return !joined || /^(?:%|!)/.test(joined) ? null : `%hlo ${options}${joined}`;
}

/** The cell magic for a whole cell, or null. */
export function cellFor(source: string, options = ""): string | null {
  const body = source.trim();
  return !body || /^(?:%|!)/.test(body) ? null : `${`%%hlo ${options}`.trim()}\n${body}`;
}
