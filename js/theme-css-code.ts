/** The part of the style sheet for coloured texts; see panels/parts/text-pane.ts. */
export const CODE_CSS = `
.code-pane{--tint:.96 .032;--tint-lit:.915 .085;--stripe:.6 .16;--added:#0a6b2e;--removed:#b3261e;--changed:#8a5300}
.root.dark .code-pane{--tint:.265 .04;--tint-lit:.36 .085;--stripe:.75 .14;--added:#7fd39a;--removed:#ff9a92;--changed:#f0c063}
.code-line{position:relative;height:19px;line-height:19px;white-space:pre;padding:0 16px 0 0;cursor:pointer;background:var(--bg)}
.code-line .gutter{position:sticky;left:0;display:inline-block;padding-left:14px;background:inherit}
.code-line .number{display:inline-block;text-align:right;padding:0 9px 0 4px;box-sizing:content-box;color:var(--dim);font:11px/19px var(--mono);user-select:none}
.code-line .stripes{position:absolute;left:0;top:0;bottom:0;width:11px;display:flex;gap:1px;padding-left:1px}
.code-line .stripes i{flex:1 1 0;max-width:4px;background:oklch(var(--stripe) var(--hue));forced-color-adjust:none}
.code-line.linked{background:oklch(var(--tint) var(--hue))}
.code-line:hover,.code-line.cursor{box-shadow:inset 0 0 0 1px var(--dim)}
.code-line.near{text-decoration:underline dotted var(--dim);text-underline-offset:4px}
.code-line.lit{background:var(--accent-soft);box-shadow:inset 0 1px var(--accent),inset 0 -1px var(--accent)}
.code-line.linked.lit{background:oklch(var(--tint-lit) var(--hue))}
.code-line.pinned{box-shadow:inset 0 0 0 2px var(--accent)}
.code-line.pinned code{font-weight:600}
.code-line.found .number{background:var(--mark,#ffdf80);color:#000;font-weight:700}
.code-line.heading{cursor:default;background:var(--bg2);font-weight:650;padding-left:6px;box-shadow:inset 0 -1px var(--line)}
.code-line.heading .gutter{display:none}
.code-line.added::before,.code-line.removed::before,.code-line.changed::before{position:absolute;left:12px;font-weight:700}
.code-line.added::before{content:"+";color:var(--added)}.code-line.removed::before{content:"−";color:var(--removed)}.code-line.changed::before{content:"~";color:var(--changed)}
.code-line:is(.added,.removed,.changed) .number{padding-left:12px}
.code-pane:focus-visible{outline:2px solid var(--accent);outline-offset:-2px}
@media (forced-colors:active){.code-line.lit{outline:1px solid Highlight;outline-offset:-1px}}
.main.alone:not(.folded) .left,.main.alone:not(.folded) .grip{display:none}
.main.alone:not(.folded) .side{flex:1 1 0;width:auto!important;height:auto!important}
.code-panel{display:flex;flex-direction:column;height:100%;min-height:0}
.code-panel .bar-row{padding:6px 10px}
.picks{display:flex;flex-wrap:wrap;gap:2px}
.pick{padding:2px 9px;border:1px solid var(--line);border-radius:4px;color:var(--dim);white-space:nowrap}
.pick:hover:not(:disabled){background:var(--bg3);color:var(--text)}
.pick[aria-pressed=true]{background:var(--accent-soft);color:var(--accent);border-color:var(--accent)}
.pick:disabled{opacity:1}
.told{flex:none;display:flex;align-items:flex-start;gap:6px;height:46px;padding:4px 10px;border-bottom:1px solid var(--line);background:var(--bg2)}
.told .said{flex:1 1 0;min-width:0;max-height:38px;overflow:hidden;line-height:19px;overflow-wrap:anywhere;scrollbar-width:thin}
.told .said code{font:12px/16px var(--mono);padding:0 3px;border-radius:3px;background:var(--bg3)}
.told.open{height:auto}
.told.open .said{max-height:min(190px,30vh);overflow:auto}
.told .mini{flex:none}
.panes{flex:1 1 0;min-height:0;display:flex}
.code-stage{flex:1 1 0;min-width:0;min-height:0;display:flex;flex-direction:column}
.code-stage+.code-stage{border-left:1px solid var(--line)}
.code-stage[data-stage=source]{flex-grow:.82}
.code-stage header{flex:none;display:flex;align-items:center;gap:6px;height:25px;padding:0 8px;border-bottom:1px solid var(--line)}
.code-stage h3{font-size:12px;white-space:nowrap}
.code-stage .where{flex:1 1 0;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;color:var(--dim);font-size:12px;text-align:right}
.code-stage>.note{flex:none;padding:2px 8px;font-size:12px;border-bottom:1px solid var(--line)}
.code-body{flex:1 1 0;min-height:0;display:flex}
.code-body .code-pane{flex:1 1 0;min-width:0}
.ruler{flex:none;position:relative;width:10px;border-left:1px solid var(--line);cursor:pointer;overflow:hidden;--found:#b26a00}
.root.dark .ruler{--found:#e0a63a}
.ruler canvas{position:absolute;inset:0;width:10px}
.find-in{flex:none;display:flex;align-items:center;gap:4px;padding:3px 6px;border-bottom:1px solid var(--line)}
.find-in .find{flex:1 1 0;min-width:0;width:0}
.find-in .hits{flex:none;color:var(--dim);font-size:12px;white-space:nowrap}
.code-body>.note{padding:8px 10px}
`;
