/** Lines in words: never a temporary path of a notebook's cell. */
import { expect, test } from "vitest";
import { baseName, shortLine, shortPlace } from "../../js/base/lines.ts";

test("files by their names", () => {
  expect(shortLine("/home/me/train.py:31")).toBe("train.py:31");
  expect(shortLine("C:\\me\\train.py:31")).toBe("train.py:31");
  expect(shortPlace("train.py", 4)).toBe("train.py:4");
  expect(shortLine("")).toBe("");
});

test("cells of a notebook", () => {
  expect(shortLine("/tmp/ipykernel_1234/25936981.py:6")).toBe("notebook cell, line 6");
  expect(shortLine("C:\\Temp\\ipykernel_12\\345.py:6")).toBe("notebook cell, line 6");
  expect(shortLine("<ipython-input-2-1b2c3d>:6")).toBe("In [2], line 6");
  expect(baseName("/tmp/ipykernel_1234/25936981.py")).toBe("notebook cell");
  expect(baseName("/srv/ipykernel_1/model.py")).toBe("model.py");
});
