/** Styles of the loading and error pages; the explorer brings its own in a shadow root. */
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
.hloscope-page { border: 0; width: 100%; height: 100%; background: white; }
.hloscope-saved { position: relative; }
`;

let added = false;

export function addStyles(): void {
  if (added) return;
  added = true;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(CSS);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
