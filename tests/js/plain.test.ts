import { expect, test } from "vitest";
import { StringTable } from "../../js/base/decode.ts";
import { parsePlain, plain } from "../../js/base/plain.ts";

const OVERRIDE = String.fromCharCode(0x202e);

test("marks that turn the direction of writing are spelled out, other text stays", () => {
  expect(plain(`x${OVERRIDE}##`)).toBe("x\\u202e##");
  expect(plain("naïve · 模型 · שלום")).toBe("naïve · 模型 · שלום");
});

test("so they are in tables of strings and in headers, however those write them", () => {
  const bytes = new TextEncoder().encode(`a${OVERRIDE}b`);
  const table = new StringTable(bytes, new Uint32Array([0, bytes.length]));
  expect(table.get(0)).toBe("a\\u202eb");
  for (const json of [JSON.stringify([OVERRIDE]), '["\\u202E"]', '["\\u202e"]']) {
    expect(parsePlain(json)).toEqual(["\\u202e"]);
  }
  expect(parsePlain('{"a": "\\u2020", "b": 1}')).toEqual({ a: "†", b: 1 });
});
