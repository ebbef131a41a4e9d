/** The part of the style sheet for passes: their table, and the picture over the graph. */
export const PASSES_CSS = `
.root{--kept:#e9eef4;--added:#a9dfc6;--added-edge:#067a55;--removed:#f6cfc4;--removed-edge:#b8401f;--changed:#f3dd8f;--changed-edge:#8a6a00}
.root.dark{--kept:#2b3541;--added:#11573f;--added-edge:#43c795;--removed:#5c2b1f;--removed-edge:#f0876a;--changed:#5a4a10;--changed-edge:#dcb73a}
.left{position:relative}
.stage{container:stage/inline-size;position:absolute;inset:0;z-index:6;display:flex;flex-direction:column;background:var(--bg)}
.stage-graph{flex:1 1 0;min-height:0;position:relative;overflow:hidden}
.stage>.note{padding:0 12px 5px}
.pass-about{flex:none;height:calc(1lh + 6px)}
.pass-bar{display:flex;align-items:center;gap:4px 8px;padding:5px 10px 3px;min-width:0}
.pass-bar .gap{flex:1 1 0}
.pass-title{display:flex;align-items:baseline;gap:8px;min-width:0;flex:0 1 auto}
.pass-bar .tool{flex:none}
@container stage (max-width:620px){.pass-title .where{display:none}}
@container stage (max-width:420px){.pass-did{display:none}}
.pass-did{font-variant-numeric:tabular-nums;white-space:nowrap;font-weight:600}
.pass-key{display:flex;flex-wrap:wrap;gap:2px 14px;padding:5px 12px;border-top:1px solid var(--line);font-size:12px}
.pass-undrawn{flex:1 1 120px;min-height:1lh}
.pass-key i{width:15px;height:15px;font:700 11px/13px var(--ui);text-align:center;color:var(--text)}
.pass-key .life-1{background:var(--kept)}
.pass-key .life-2{background:var(--added);border-color:var(--added-edge)}
.pass-key .life-3{background:var(--removed);border:1px dashed var(--removed-edge)}
.pass-key .life-4{background:var(--changed);border-color:var(--changed-edge)}
.pass-table{flex:1 1 0;height:auto;container:passes/inline-size}
.pass-row{display:grid;grid-template-columns:minmax(110px,1fr) repeat(3,minmax(44px,52px)) 40px repeat(3,minmax(52px,66px));gap:0 6px;align-items:center;height:24px;padding:0 10px;font-size:12px;cursor:pointer}
@container passes (max-width:600px){.pass-row{grid-template-columns:minmax(110px,1fr) 52px 52px 40px 66px}.pass-row>:is(:nth-child(4),:nth-child(6),:nth-child(8)){display:none}}
.pass-row .num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.pass-row:hover{background:var(--bg3)}
.pass-row.chosen{background:var(--accent-soft)}
.pass-row.chosen .pass-name{color:var(--accent);font-weight:600}
.num.up,.change.up{color:var(--removed-edge)}.num.down,.change.down{color:var(--added-edge)}
.pass-head{position:static;color:var(--dim);cursor:default;border-bottom:1px solid var(--line);flex:none}
.pass-head:hover{background:none}
.pass-pipeline{height:24px;padding:5px 10px 0;font-size:11px;color:var(--dim)}
.pass-folded{display:block;width:100%;height:24px;padding:0 10px;font-size:11px;color:var(--dim)}
.pass-folded:hover{text-decoration:underline}
.pass-life{flex:0 1 42%;min-height:90px;overflow:auto;padding:8px 12px;border-top:1px solid var(--line);scrollbar-width:thin}
.pass-life .section{margin-top:8px}
.pass-life .pass-figures{margin-top:8px;display:grid;grid-template-columns:auto auto 1fr;gap:2px 16px;font-size:12px;font-variant-numeric:tabular-nums}
.pass-figures>*{text-align:right;white-space:nowrap}.pass-figures>.what{text-align:left;color:var(--dim)}.pass-figures>.change{text-align:left}
.pass-life p .link{font-size:13px}
.column>.pass-rest{padding:4px 10px}
.pass-diff{flex:1 1 0;height:auto;border-top:1px solid var(--line)}
.pass-diff .code-pane{flex:1 1 0}
.pass-same{padding:10px 12px}
.empty progress{display:block;width:min(260px,100%);margin:6px 0}
`;
