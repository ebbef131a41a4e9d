/** Makes text from files safe to draw: it must not reorder the text around it. */

const REORDERING = /[\u202a-\u202e\u2066-\u2069]/g;

/** Text with characters that change the writing direction spelled out: `x\u202e##`. */
export const plain = (text: string): string =>
  text.replace(REORDERING, (c) => `\\u${c.charCodeAt(0).toString(16)}`);

/** Parsed JSON, with every string passed through `plain`. */
export function parsePlain(json: string): unknown {
  const has = json.search(REORDERING) >= 0 || /\\u20[26]/i.test(json);
  if (!has) return JSON.parse(json);
  return JSON.parse(json, (_, value) => (typeof value === "string" ? plain(value) : value));
}
