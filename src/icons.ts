import { LabIcon } from "@jupyterlab/ui-components";

/** Three boxes with values flowing between them. */
export const hloIcon = new LabIcon({
  name: "hloscope:hlo",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
<g class="jp-icon3" fill="#616161"><rect x="1.5" y="1.5" width="5.5" height="4" rx="1"/>
<rect x="9" y="1.5" width="5.5" height="4" rx="1"/><rect x="4" y="10.5" width="8" height="4" rx="1"/>
<path d="M3.7 5.5h1.2v1.6h6.2V5.5h1.2v2.8H8.6v2.2H7.4V8.3H3.7z"/></g></svg>`,
});
