/** How source lines are named: never by the temporary path of a notebook's cell. */
import { expect, test } from "vitest";
import { baseName, shortLine, shortPlace, wholePlace } from "../../js/base/lines.ts";
import cases from "../golden/lines.json";

test.each(cases)("%s in words, as Python says it", (place, short, whole) => {
  expect(shortLine(place)).toBe(short);
  expect(wholePlace(place)).toBe(whole);
});

test("files by their names", () => {
  expect(shortPlace("train.py", 4)).toBe("train.py:4");
  expect(shortPlace("In [2]", 4)).toBe("In [2], line 4");
  expect(baseName("/tmp/ipykernel_1234/25936981.py")).toBe("notebook cell");
  expect(baseName("/data/ipykernel_1/model.py")).toBe("model.py");
});
