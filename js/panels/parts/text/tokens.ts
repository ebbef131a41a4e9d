/** Splits lines of programs into tokens for colouring; presentation only. */

export type TokenKind =
  | "name"
  | "string"
  | "comment"
  | "shape"
  | "opcode"
  | "key"
  | "word"
  | "plain";

export type Tokens = (line: string) => [TokenKind, string][];

/** The groups of the expression correspond to `kinds`, in order. */
function cutter(token: RegExp, kinds: TokenKind[]): Tokens {
  return (line) => {
    const out: [TokenKind, string][] = [];
    let at = 0;
    for (const m of line.matchAll(token)) {
      if (m.index > at) out.push(["plain", line.slice(at, m.index)]);
      out.push([kinds[m.slice(1).findIndex((g) => g !== undefined)], m[0]]);
      at = m.index + m[0].length;
    }
    if (at < line.length) out.push(["plain", line.slice(at)]);
    return out;
  };
}

/** HLO text. */
export const tokens = cutter(
  /("(?:[^"\\]|\\.)*"?)|(\/\*.*?\*\/|^\s*\/\/.*)|(%[\w.-]+)|\b([a-z]+\d*(?:e\d+m\d+\w*)?\[[^\]]*\](?:\{[\d,]*(?::[^}]*)?\})?)|\b(ENTRY|ROOT|HloModule)\b|([a-z][\w-]*)(?=\()|([A-Za-z_][\w-]*)(?==)/g,
  ["string", "comment", "name", "shape", "word", "opcode", "key"],
);

/** StableHLO and other MLIR. */
export const mlirTokens = cutter(
  /("(?:[^"\\]|\\.)*"?)|(\/\/.*)|(%[\w$.-]+(?:#\d+)?|@[\w$.-]+)|((?:tensor|tuple|memref)<[^>]*>+)|\b(module|func\.func|return|stablehlo\.return|cond|do|private|public)\b|\b((?:[a-z_]+\.)+[a-z_\d]+|call)\b|([A-Za-z_][\w.]*)(?= ?=[^=])/g,
  ["string", "comment", "name", "shape", "word", "opcode", "key"],
);

/** Python. */
export const pythonTokens = cutter(
  /([rbfRBF]{0,2}(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?))|(#.*)|\b(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b|(@[\w.]+)|([A-Za-z_]\w*)(?=\()/g,
  ["string", "comment", "word", "name", "opcode"],
);
