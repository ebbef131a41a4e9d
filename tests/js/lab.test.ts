import { describe, expect, it } from "vitest";
import { capturesIn, facts, MARKER } from "../../src/notebook/captures.ts";
import { cellFor, expressionAt, lineFor } from "../../src/notebook/expression.ts";
import { isIdentifier } from "../../src/notebook/kernel.ts";
import { withAnalyses, withoutAnalyses } from "../../src/notebook/saved-data.ts";

const at = (marked: string) => {
  const offset = marked.indexOf("|");
  return expressionAt(marked.replace("|", ""), offset);
};

describe("the expression that is meant", () => {
  it.each([
    ["y = st|ep(params, batch)", "step(params, batch)"],
    ["y = step|(params, batch) + 1", "step(params, batch)"],
    ["y = jax.j|it(step)(a, b)[0]", "jax.jit(step)(a, b)"],
    ["f|(g(')', x), {'(': 1})  # (", "f(g(')', x), {'(': 1})"],
    ['|f("""a\n")""", x)', 'f("""a\n")""", x)'],
    ["s|tep(\n    a,  # one (\n    b,\n)", "step(\n    a,  # one (\n    b,\n)"],
  ])("%s is a call", (marked, text) => {
    expect(at(marked)).toEqual({ text, isCall: true, isDefinition: false });
  });
  it("is a name where nothing is called", () => {
    expect(at("y = step(ba|tch)")).toEqual({ text: "batch", isCall: false, isDefinition: false });
    expect(at("low|ered.x")).toMatchObject({ text: "lowered.x", isCall: false });
  });
  it("is no call where the function is defined", () => {
    expect(at("def st|ep(a):\n  return a")).toEqual({
      text: "step",
      isCall: false,
      isDefinition: true,
    });
  });
  it.each(["'st|ep(a)'", "1 + |+ 2", "# st|ep(a)", "st|ep(a, (b)", '"""\nst|ep(a)\n"""'])(
    "%s is nothing",
    (marked) => {
      expect(at(marked)).toBeNull();
    },
  );
  it("becomes a magic of one line", () => {
    expect(lineFor("step(\n  a,  # first\n  b,\n)")).toBe("%hlo step( a, b, )");
    expect(lineFor("step(a)", "--hardware h100 ")).toBe("%hlo --hardware h100 step(a)");
    expect(lineFor("%time x")).toBeNull();
    expect(cellFor("x = 1\nf(x)\n")).toBe("%%hlo\nx = 1\nf(x)");
    expect(cellFor("f(x)", "--hardware h100 ")).toBe("%%hlo --hardware h100\nf(x)");
    expect(cellFor("%%bash\nls")).toBeNull();
    expect(cellFor("  ")).toBeNull();
  });
});

const marker = (more: object = {}) => ({
  version: 1,
  id: "0123456789ab",
  name: "cap",
  title: "jit_step",
  module: "jit_step",
  stage: "optimized",
  devices: "8 × cpu",
  instructions: 1234,
  peak_bytes: 3 * 1024 ** 2,
  collectives: 1,
  wire_bytes: 2048,
  wire_is_least: true,
  shown: "2026-03-01T10:00:00+00:00",
  ...more,
});

function cells(...outputs: Record<string, unknown>[][]) {
  const all = outputs.map((list) => ({
    type: "code",
    trusted: false,
    outputs: { length: list.length, get: (k: number) => ({ data: list[k] }) },
  }));
  return { length: all.length, get: (k: number) => all[k] };
}

describe("captures of a notebook", () => {
  it("are outputs with the marker", () => {
    const found = capturesIn(
      cells([{ "text/plain": "1" }], [{ "text/html": ["<b", ">"], [MARKER]: marker() }]),
    );
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({ id: "0123456789ab", cell: 1, output: 0, html: "<b>" });
    expect(facts(found[0], "cap")).toEqual([
      "jit_step · optimized · 8 × cpu",
      "1,234 instructions · peak 3 MiB",
      "1 collective, ≥ 2 KiB sent",
    ]);
    expect(facts(found[0], "jit_step")[0]).toBe("optimized · 8 × cpu");
  });
  it("stand once, at their last place", () => {
    const one = { [MARKER]: marker() };
    const other = { [MARKER]: marker({ id: "f".repeat(12) }) };
    const found = capturesIn(cells([one], [other], [one]));
    expect(found.map((f) => [f.id[0], f.cell])).toEqual([
      ["f", 1],
      ["0", 2],
    ]);
  });
  it("of an older version have a title and nothing that is made up", () => {
    const [found] = capturesIn(
      cells([{ [MARKER]: { version: 1 }, "text/plain": "jit_old · optimized\n  instructions 3" }]),
    );
    expect(found).toMatchObject({ id: "", title: "jit_old", instructions: null, shown: null });
    expect(facts(found, found.title)).toEqual([]);
  });
  it("may be anything in a file", () => {
    const odd = {
      id: 7,
      name: {},
      title: [],
      instructions: "1",
      peak_bytes: -1,
      wire_bytes: Number.POSITIVE_INFINITY,
    };
    const [found] = capturesIn(cells([{ [MARKER]: { ...marker(odd), shown: "never" } }]));
    expect(found).toMatchObject({
      id: "",
      name: "",
      peakBytes: null,
      wireBytes: null,
      shown: null,
    });
    expect(capturesIn(cells([{ [MARKER]: null }]))).toHaveLength(1);
  });
});

it("no text of a notebook reaches the kernel as an identifier", () => {
  expect(isIdentifier("0123456789ab")).toBe(true);
  for (const odd of ["", "0123456789AB", "'+exit()+'aaa", "0123456789ab\n", 123456789012, null]) {
    expect(isIdentifier(odd), String(odd)).toBe(false);
  }
});

describe("analyses of a saved output", () => {
  const block = (id: string, data: string) =>
    `<script type="application/octet-stream;base64" id="hloscope-${id}">${data}</script>`;
  const frame = (...blocks: string[]) =>
    `<iframe srcdoc="${`<main>${blocks.join("\n")}</main>`.replaceAll('"', "&quot;")}"></iframe>`;
  const made = new Uint8Array([1, 2, 3]);

  it("are exchanged where they are, and nothing else is", () => {
    const html = frame(block("view", "Vg=="), block("analyses", "QQ=="), block("text", "VA=="));
    expect(withAnalyses(html, made)).toBe(html.replace("QQ==", "AQID"));
    expect(withoutAnalyses(withAnalyses(html, made))).toBe(withoutAnalyses(html));
  });
  it("are added where a large program was saved before they were worked out", () => {
    const html = frame(block("view", "Vg=="), block("text", "VA=="));
    const added = frame(block("view", "Vg=="), block("analyses", "AQID"), block("text", "VA=="));
    expect(withAnalyses(html, made)).toBe(added);
  });
  it("are not there where only a summary was kept", () => {
    expect(withAnalyses("<pre>jit_step</pre>", made)).toBe("<pre>jit_step</pre>");
  });
});
