/** Where a JSON value differs from its declaration. */

/** The fields of each object by their type; those with ? may be absent. */
export type Shapes = Record<string, Record<string, string>>;

const WORDS: Record<string, string> = {
  string: "text",
  number: "a number",
  boolean: "true or false",
};

/**
 * Where and how a JSON value differs from a type, ".cost.totals is missing"; "" if it conforms.
 *
 * Types: "string", "number", "boolean", a name of `shapes`, "?T" for T or null, "[T]" for a list,
 * "(T,U)" for one of two, "{T}" for a dictionary, "T/U" for either, "a|b|" for a or b. Other keys
 * than those of `shapes` pass: a newer hloscope may have more.
 */
export function difference(value: unknown, type: string, shapes: Shapes): string {
  const inner = type.slice(1, -1);
  if (type[0] === "?") return value === null ? "" : difference(value, type.slice(1), shapes);
  if (type[0] === "[") {
    if (!Array.isArray(value)) return " is not a list";
    return first(
      value.entries(),
      (k) => `[${k}]`,
      () => inner,
      shapes,
    );
  }
  if (type[0] === "(") {
    const types = inner.split(",");
    if (!Array.isArray(value) || value.length !== types.length) {
      return ` is not a list of ${types.length}`;
    }
    return first(
      value.entries(),
      (k) => `[${k}]`,
      (k) => types[k],
      shapes,
    );
  }
  if (type.includes("/")) {
    const either = type.split("/");
    const conforms = either.some((each) => !difference(value, each, shapes));
    return conforms ? "" : ` is neither ${either.map((each) => WORDS[each]).join(" nor ")}`;
  }
  if (WORDS[type]) return typeof value === type ? "" : ` is not ${WORDS[type]}`;
  if (type.endsWith("|")) {
    const choices = type.slice(0, -1).split("|");
    return choices.includes(value as string) ? "" : ` is none of ${choices.join(", ")}`;
  }
  if (!isObject(value)) return " is not an object";
  if (type[0] === "{") {
    return first(
      Object.entries(value),
      (key) => `.${key}`,
      () => inner,
      shapes,
    );
  }
  for (const [of, names] of Object.entries(shapes[type])) {
    for (const name of names.split(" ")) {
      const key = name.replace("?", "");
      const isThere = Object.hasOwn(value, key);
      const found = isThere
        ? difference(value[key], of, shapes)
        : key === name
          ? " is missing"
          : "";
      if (found) return `.${key}${found}`;
    }
  }
  return "";
}

/** The first difference among several values. */
function first<K>(
  values: Iterable<[K, unknown]>,
  place: (key: K) => string,
  type: (key: K) => string,
  shapes: Shapes,
): string {
  for (const [key, value] of values) {
    const found = difference(value, type(key), shapes);
    if (found) return `${place(key)}${found}`;
  }
  return "";
}

const isObject = (v: unknown): v is Record<string, unknown> =>
  typeof v === "object" && v !== null && !Array.isArray(v);
