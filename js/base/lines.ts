/**
 * Files and lines as text; notebook cells have no file name that a user would recognise.
 *
 * `hlo/places.py` does the same in Python; both are tested against `tests/golden/lines.json`.
 */

/**
 * File names that IPython gives to cells: "/tmp/ipykernel_7/25936981.py",
 * "<ipython-input-2-1b2c>"; and what a capture turns them into: "In [2]".
 */
const CELL = /(?:^|[\\/])ipykernel_\d+[\\/]\d+\.py$/;
const NUMBERED = /^(?:<ipython-input-(\d+)-\w+>|In \[(\d+)\])$/;

const isCell = (file: string): boolean => NUMBERED.test(file) || CELL.test(file);

/** "train.py" for "dir/train.py"; for a cell "In [2]", where its number is known. */
export function baseName(file: string): string {
  const numbered = NUMBERED.exec(file);
  if (numbered) return `In [${numbered[1] ?? numbered[2]}]`;
  if (CELL.test(file)) return "notebook cell";
  return file.slice(Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\")) + 1);
}

/** "train.py:31", "In [2], line 31". */
export function shortPlace(file: string, line: number | string): string {
  return isCell(file) ? `${baseName(file)}, line ${line}` : `${baseName(file)}:${line}`;
}

/** The same for "dir/train.py:31"; without a line, the file's base name. */
export function shortLine(place: string): string {
  const at = /^(.*):(\d+)$/s.exec(place);
  return at ? shortPlace(at[1], at[2]) : baseName(place);
}

/** A place unchanged, except that cells are shortened. */
export function wholePlace(place: string): string {
  const at = /^(.*):(\d+)$/s.exec(place);
  return at && isCell(at[1]) ? shortPlace(at[1], at[2]) : place;
}
