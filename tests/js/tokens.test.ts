import { expect, test } from "vitest";
import { mlirTokens, pythonTokens, tokens } from "../../js/panels/parts/text/tokens.ts";

const LINES = [
  '%0:3 = call @layer(%arg3, %arg0) : (tensor<8x64xf32>) -> (tensor<8x64xf32>) "a',
  '    h = jnp.tanh(x @ w.T)  # "not a string',
  "  ROOT %tuple.3 = (f32[8]{0}, f32[]) tuple(%a, %b), index=0",
  "",
  "𝔘 = 'é",
  "%",
  "@",
  '"',
  "tensor<",
  "module @jit_f attributes {a = 1}",
];

test.each([
  ["hlo", tokens],
  ["mlir", mlirTokens],
  ["python", pythonTokens],
])("%s: every character of a line is in one token", (_, cut) => {
  for (const line of LINES)
    expect(
      cut(line)
        .map(([, text]) => text)
        .join(""),
    ).toBe(line);
});

test("StableHLO: values, functions, types and operations", () => {
  expect(mlirTokens("%1 = stablehlo.add %a#0, %b : tensor<2x?xbf16>")).toEqual([
    ["name", "%1"],
    ["plain", " = "],
    ["opcode", "stablehlo.add"],
    ["plain", " "],
    ["name", "%a#0"],
    ["plain", ", "],
    ["name", "%b"],
    ["plain", " : "],
    ["shape", "tensor<2x?xbf16>"],
  ]);
});

test("Python: words, calls, strings and comments", () => {
  const kinds = pythonTokens('return f(x, "a#b")  # why');
  expect(kinds.filter(([kind]) => kind !== "plain")).toEqual([
    ["word", "return"],
    ["opcode", "f"],
    ["string", '"a#b"'],
    ["comment", "# why"],
  ]);
});
