/** Explains the text of a shape. Presentation only: bytes and dtypes come from Python. */

const LAYOUT = /\{([\d,]*)(?::([^}]*))?\}/;

/** Facts about a shape such as `bf16[8,128]{1,0:T(8,128)(2,1)S(1)}`; for tuples, only the kind. */
export function explainShape(shape: string): [name: string, value: string][] {
  if (shape.startsWith("(")) return [["Kind", "tuple"]];
  const array = /^([a-z0-9]+)\[([^\]]*)\]/.exec(shape);
  if (!array) return [];
  const out: [string, string][] = [["Element type", array[1]]];
  const dims = array[2] ? array[2].split(",") : [];
  out.push(["Dimensions", dims.length ? dims.join(" × ") : "scalar"]);
  const layout = LAYOUT.exec(shape.slice(array[0].length));
  if (!layout) return out;
  const order = layout[1] ? layout[1].split(",") : [];
  if (order.length > 1) {
    const rowMajor = order.every((d, k) => Number(d) === order.length - 1 - k);
    out.push([
      "Layout",
      rowMajor
        ? "row-major"
        : `dimension ${order[0]} varies fastest, then ${order.slice(1).join(", ")}`,
    ]);
  }
  const extra = layout[2] ?? "";
  const tiles = /T((?:\([^)]*\))+)/.exec(extra);
  if (tiles) {
    const each = tiles[1]
      .slice(1, -1)
      .split(")(")
      .map((t) => t.replaceAll(",", " × "));
    out.push(["Tiles", each.join(", then ")]);
  }
  const space = /S\((\d+)\)/.exec(extra);
  if (space) {
    const names: Record<string, string> = { "1": "on-chip (VMEM on TPU)", "5": "host" };
    out.push(["Memory space", `S(${space[1]})${names[space[1]] ? `, ${names[space[1]]}` : ""}`]);
  }
  const bits = /E\((\d+)\)/.exec(extra);
  if (bits) out.push(["Element size", `${bits[1]} bits`]);
  return out;
}
