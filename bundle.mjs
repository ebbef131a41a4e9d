// What both bundles, the renderer and the JupyterLab extension, have in common.

import { readFile } from "node:fs/promises";
import { transform } from "esbuild";

/** `import text from "./sheet.css"`: the minified style sheet as a string, for adoptedStyleSheets. */
export const css = {
  name: "css",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const sheet = await readFile(path, "utf8");
      const { code } = await transform(sheet, { loader: "css", minify: true, charset: "utf8" });
      return { contents: code, loader: "text" };
    });
  },
};
