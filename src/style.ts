/** Styles of the extension's own pages and panels; the explorer has its own in a shadow root. */
const CSS = `
.hloscope-pane { display: flex; flex-direction: column; overflow: hidden; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1); }
.hloscope-explorer { flex: 1 1 auto; min-height: 0; overflow: hidden; }
.hloscope-status, .hloscope-explorer { outline: none; }
.hloscope-status { padding: 24px; max-width: 60rem; font: var(--jp-ui-font-size1) var(--jp-ui-font-family); overflow: auto; }
.hloscope-status h2 { font-size: var(--jp-ui-font-size2); margin: 0 0 8px; font-weight: 600; }
.hloscope-status p { margin: 0 0 12px; overflow-wrap: anywhere; }
.hloscope-status progress { width: min(24rem, 100%); margin: 0 0 12px; display: block; }
.hloscope-status pre { font: var(--jp-code-font-size) var(--jp-code-font-family); background: var(--jp-layout-color2); border: 1px solid var(--jp-border-color2); padding: 8px 0; margin: 0 0 12px; overflow: auto; }
.hloscope-status pre span { display: block; padding: 0 8px; min-height: 1.3em; white-space: pre; width: max-content; min-width: calc(100% - 16px); }
.hloscope-status pre span.hloscope-fault { background: var(--jp-rendermime-error-background, #fdd); font-weight: 600; }
.hloscope-notice { display: flex; gap: 12px; align-items: center; padding: 4px 12px; border-bottom: 1px solid var(--jp-border-color2); font-size: var(--jp-ui-font-size1); background: var(--jp-layout-color2); }
.hloscope-notice span { overflow-wrap: anywhere; }
.hloscope-chooser select { max-width: 24rem; height: 24px; font: var(--jp-ui-font-size1) var(--jp-ui-font-family); color: var(--jp-ui-font-color1); background: var(--jp-layout-color1); border: 1px solid var(--jp-border-color1); border-radius: 2px; }
.hloscope-page { border: 0; width: 100%; height: 100%; }
/* A frame knows the system's scheme only; JupyterLab's may be the other one. */
@media (prefers-color-scheme: light) { .hloscope-page { background: white; } body[data-jp-theme-light="false"] .hloscope-page { filter: invert(0.88) hue-rotate(180deg); } }
@media (prefers-color-scheme: dark) { body[data-jp-theme-light="true"] .hloscope-page { filter: invert(1) hue-rotate(180deg); } }
.hloscope-saved { position: relative; }
.hloscope-saved-document { height: 100%; overflow: hidden; background: var(--jp-layout-color1); }
.jp-Dialog-content:has(.hloscope-in-dialog) { max-width: none; max-height: none; width: min(92vw, 1200px); height: min(88vh, 900px); }
.hloscope-in-dialog { flex: 1 1 auto; min-height: 0; overflow: hidden; }
.hloscope-captures { display: flex; flex-direction: column; overflow: auto; min-width: 200px; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1); font: var(--jp-ui-font-size1) / 1.4 var(--jp-ui-font-family); }
.hloscope-captures-head { margin: 0; padding: 8px 12px; font-size: var(--jp-ui-font-size1); font-weight: 600; overflow-wrap: anywhere; border-bottom: 1px solid var(--jp-border-color2); }
.hloscope-captures-note { margin: 0; padding: 6px 12px; background: var(--jp-layout-color2); border-bottom: 1px solid var(--jp-border-color2); }
.hloscope-captures-empty { padding: 8px 12px; }
.hloscope-captures-empty p { margin: 0 0 8px; }
.hloscope-captures-empty pre { margin: 0 0 8px; padding: 6px 8px; font: var(--jp-code-font-size) / 1.4 var(--jp-code-font-family); background: var(--jp-layout-color2); border: 1px solid var(--jp-border-color2); border-radius: 2px; white-space: pre-wrap; user-select: text; }
.hloscope-captures-list { list-style: none; margin: 0; padding: 0; }
.hloscope-capture { padding: 8px 12px; border-bottom: 1px solid var(--jp-border-color2); }
.hloscope-capture:hover { background: var(--jp-layout-color2); }
.hloscope-capture-head { display: flex; align-items: baseline; gap: 8px; }
.hloscope-capture-head time { margin-left: auto; color: var(--jp-ui-font-color1); white-space: nowrap; font-variant-numeric: tabular-nums; }
.hloscope-capture-head .hloscope-capture-remove { margin-left: auto; padding: 0 4px; text-decoration: none; }
.hloscope-capture-head time + .hloscope-capture-remove { margin-left: 0; }
.hloscope-captures button { border: 0; padding: 2px 0; background: none; color: var(--jp-content-link-color, #0b66c3); font: inherit; text-align: left; cursor: pointer; }
.hloscope-captures button:hover:enabled { text-decoration: underline; }
.hloscope-captures button:focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: 1px; border-radius: 2px; }
.hloscope-captures button:disabled { color: var(--jp-ui-font-color2); cursor: default; }
.hloscope-captures .hloscope-capture-name { color: inherit; font-weight: 600; overflow-wrap: anywhere; }
.hloscope-captures .hloscope-capture-remove { color: inherit; font-size: 1.2em; line-height: 1; }
.hloscope-capture-tag { border: 1px solid var(--jp-border-color1); border-radius: 8px; padding: 0 6px; font-size: var(--jp-ui-font-size0); }
.hloscope-capture-fact { overflow-wrap: anywhere; }
.hloscope-capture-actions { display: flex; flex-wrap: wrap; gap: 0 14px; margin-top: 2px; }
`;

let added = false;

export function addStyles(): void {
  if (added) return;
  added = true;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(CSS);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
