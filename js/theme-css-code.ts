/** The part of the style sheet for coloured texts: see panels/parts/text-pane.ts. */
export const CODE_CSS = `
.code-pane{--tint:78% 94%;--tint-lit:85% 80%;--stripe:62% 46%;--added:#0a6b2e;--removed:#b3261e;--changed:#8a5300}
.root.dark .code-pane{--tint:34% 17%;--tint-lit:52% 30%;--stripe:60% 62%;--added:#7fd39a;--removed:#ff9a92;--changed:#f0c063}
.code-line{position:relative;height:19px;line-height:19px;white-space:pre;padding:0 16px 0 14px;cursor:pointer;background:var(--bg)}
.code-line .number{display:inline-block;text-align:right;padding:0 9px 0 4px;box-sizing:content-box;color:var(--dim);font:11px/19px var(--mono);user-select:none}
.code-line .stripes{position:absolute;left:0;top:0;bottom:0;width:11px;display:flex;gap:1px;padding-left:1px}
.code-line .stripes i{flex:1 1 0;max-width:4px;background:hsl(var(--hue) var(--stripe));forced-color-adjust:none}
.code-line.linked{background:hsl(var(--hue) var(--tint))}
.code-line:hover,.code-line.cursor{box-shadow:inset 0 0 0 1px var(--dim)}
.code-line.near{text-decoration:underline dotted var(--dim);text-underline-offset:4px}
.code-line.lit{background:var(--accent-soft);box-shadow:inset 0 1px var(--accent),inset 0 -1px var(--accent)}
.code-line.linked.lit{background:hsl(var(--hue) var(--tint-lit))}
.code-line.pinned{box-shadow:inset 0 0 0 2px var(--accent)}
.code-line.pinned code{font-weight:600}
.code-line.heading{cursor:default;background:var(--bg2);font-weight:650;padding-left:6px;box-shadow:inset 0 -1px var(--line)}
.code-line.heading .stripes,.code-line.heading .number{display:none}
.code-line.added::before,.code-line.removed::before,.code-line.changed::before{position:absolute;left:12px;font-weight:700}
.code-line.added::before{content:"+";color:var(--added)}.code-line.removed::before{content:"−";color:var(--removed)}.code-line.changed::before{content:"~";color:var(--changed)}
.code-line:is(.added,.removed,.changed) .number{padding-left:12px}
.code-pane:focus-visible{outline:2px solid var(--accent);outline-offset:-2px}
@media (forced-colors:active){.code-line.lit{outline:1px solid Highlight;outline-offset:-1px}}
`;
