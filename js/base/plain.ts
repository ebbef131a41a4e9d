/** Text of files as it is drawn: nothing in it may reorder what stands around it. */

const REORDERING = /[\u202a-\u202e\u2066-\u2069]/g;

/** Text with marks that turn the direction of writing spelled out: `x\u202e##`. */
export const plain = (text: string): string =>
  text.replace(REORDERING, (c) => `\\u${c.charCodeAt(0).toString(16)}`);

/** JSON, its strings as `plain` has them. */
export function parsePlain(json: string): unknown {
  const has = json.search(REORDERING) >= 0 || /\\u20[26]/i.test(json);
  if (!has) return JSON.parse(json);
  return JSON.parse(json, (_, value) => (typeof value === "string" ? plain(value) : value));
}
