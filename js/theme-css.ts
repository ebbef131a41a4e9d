/** The explorer's style sheet, adopted by its shadow root, out of reach of page styles and CSP. */
export const CSS = `
:host{display:block;contain:content;color-scheme:light dark}
*{box-sizing:border-box}
[hidden]{display:none!important}
.root{
  --bg:#fff;--bg2:#f6f8fa;--bg3:#eaeef2;--line:#d4dae1;--text:#1c2530;--dim:#57636f;
  --accent:#0b57d0;--accent-soft:#e2ecfd;--warn:#8a5300;--warn-soft:#fff3d6;--found:#fff2b8;
  --t-name:#0b57d0;--t-string:#0a6b2e;--t-shape:#6b4ba1;--t-opcode:#a63a00;--t-key:#57636f;
  --ui:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
  --mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
  color-scheme:light;position:relative;display:flex;flex-direction:column;overflow:hidden;height:100%;min-height:240px;
  background:var(--bg);color:var(--text);font:13px/1.45 var(--ui);text-align:left;
  border:1px solid var(--line);border-radius:6px}
.root.dark{
  --bg:#14181d;--bg2:#1a2027;--bg3:#262e37;--line:#37424e;--text:#e4eaf0;--dim:#a3b0bd;
  --accent:#7db4ff;--accent-soft:#1d3552;--warn:#f0c063;--warn-soft:#3a2f14;--found:#57490f;
  --t-name:#8ab8ff;--t-string:#7fd39a;--t-shape:#c8b0f5;--t-opcode:#f5a777;--t-key:#a3b0bd;color-scheme:dark}
.root.jupyter{--ui:var(--jp-ui-font-family,system-ui,sans-serif);--mono:var(--jp-code-font-family,monospace);
  --bg:var(--jp-layout-color0,#fff);--text:var(--jp-ui-font-color0,#1c2530)}
.root.jupyter:not(.dark){--bg2:var(--jp-layout-color1,#f6f8fa)}
.root.vscode{--ui:var(--vscode-font-family,system-ui,sans-serif);--mono:var(--vscode-editor-font-family,monospace);
  --bg:var(--vscode-editor-background,#fff);--text:var(--vscode-editor-foreground,#1c2530)}
.root.page{border:0;border-radius:0}
.root.sized{resize:vertical}
.root:fullscreen,.root.full{border:0;border-radius:0;height:100%!important;max-height:none}
.root.full{position:fixed;inset:0;z-index:9999}
:focus{outline:none}
:focus-visible{outline:2px solid var(--accent);outline-offset:-2px;border-radius:3px}
h1,h2,h3,p,dl,dd,ul,ol,pre{margin:0;padding:0}
ul,ol{list-style:none}
button,input,select{font:inherit;color:inherit}
button{cursor:pointer;background:none;border:0;padding:0;text-align:left}
button:disabled{opacity:.4;cursor:default}
.mono,code,pre{font-family:var(--mono);font-size:12px}
.dim{color:var(--dim)}.strong{font-weight:600}
.clip{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0}
.visually-hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}

.header{display:flex;align-items:baseline;gap:4px 10px;padding:7px 12px 5px}
.header h2{flex:0 1 auto;min-width:36px;max-width:60%;font-size:15px;font-weight:650;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.header .sub{flex:0 2 auto;min-width:40px;color:var(--dim);overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.header .figures{flex:1 1 0;min-width:0;color:var(--dim);text-align:right;font-variant-numeric:tabular-nums;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.figures span{white-space:nowrap}
.badge{background:var(--warn-soft);color:var(--warn);border-radius:10px;padding:0 8px;font-weight:600;white-space:nowrap}

.toolbar{display:flex;align-items:center;flex-wrap:wrap;gap:4px 2px;padding:3px 8px 6px;border-bottom:1px solid var(--line)}
.toolbar .gap{flex:1 1 0}
.toolbar .rule{width:1px;height:18px;background:var(--line);margin:0 5px}
.tool{display:inline-flex;align-items:center;justify-content:center;gap:5px;min-width:28px;height:28px;padding:0 6px;border-radius:5px;color:var(--text);white-space:nowrap}
.tool:hover:not(:disabled){background:var(--bg3)}
.tool[aria-pressed=true],.tool[aria-expanded=true]{background:var(--accent-soft);color:var(--accent)}
.tool svg{width:16px;height:16px;fill:none;stroke:currentColor;stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}
.search{position:relative;flex:0 1 250px;min-width:130px;margin-right:6px}
.search input{width:100%;padding-right:26px}
.search kbd{position:absolute;right:7px;top:5px}
.search input:focus+kbd{display:none}
input:not([type=checkbox]),select{height:28px;padding:0 8px;border:1px solid var(--line);border-radius:5px;background:var(--bg);min-width:0}
input::placeholder{color:var(--dim);opacity:1}
select{padding:0 4px}
label.field{display:inline-flex;align-items:center;gap:6px;color:var(--dim);white-space:nowrap}
label.field select{color:var(--text);max-width:150px}
kbd{font:11px/16px var(--mono);border:1px solid var(--line);border-radius:3px;padding:0 4px;color:var(--dim);background:var(--bg2)}

.popover{position:absolute;z-index:20;background:var(--bg);border:1px solid var(--line);border-radius:6px;box-shadow:0 6px 24px #0004;padding:6px;max-width:min(460px,calc(100% - 16px));max-height:70%;overflow:auto}
.popover.warnings li{padding:4px 6px;overflow-wrap:anywhere}
.places{display:grid;gap:8px;width:300px;padding:6px}.places ul{margin:0;padding:0;list-style:none}.places li{display:flex;flex-wrap:wrap;align-items:center;gap:2px 8px;padding:3px 0;border-bottom:1px solid var(--line)}.places li .link{flex:1;text-align:left;overflow-wrap:anywhere}.places li p{flex-basis:100%;margin:0 0 3px;white-space:pre-wrap}
.places form,.places .row{display:grid;gap:6px}.places .row{display:flex;align-items:center}.places input,.places textarea{font:inherit;color:inherit;background:var(--bg);border:1px solid var(--line);border-radius:4px;padding:4px 6px}.places .action{border:1px solid var(--line);border-radius:5px;padding:4px 10px;background:var(--bg2)}
.menu button{display:flex;width:100%;justify-content:space-between;gap:24px;padding:5px 8px;border-radius:4px}
.menu button:hover,.menu button:focus-visible{background:var(--bg3)}
.sheet{position:absolute;inset:0;z-index:30;display:grid;place-items:center;background:#0006;padding:12px}
.sheet>div{background:var(--bg);border:1px solid var(--line);border-radius:8px;padding:14px 18px;max-width:920px;width:100%;max-height:100%;overflow:auto}
.sheet .columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:6px 28px}.sheet h3{font-size:12px;color:var(--dim)}
.sheet header{display:flex;justify-content:space-between;align-items:center;margin-bottom:8px}
.sheet h2{font-size:15px}
.keys{border-collapse:collapse;width:100%}
.keys td,.keys th{padding:3px 8px 3px 0;vertical-align:top;text-align:left;font-weight:400}
.keys th{white-space:nowrap}

.main{flex:1 1 0;min-height:0;display:flex}
.left{flex:1 1 0;min-width:0;min-height:0;display:flex;flex-direction:column}
.graph{flex:1 1 0;min-height:0;position:relative;overflow:hidden}
.nothing{position:absolute;inset:0;display:grid;place-content:center;padding:12px;text-align:center;pointer-events:none}
.chip-note{position:absolute;left:10px;bottom:8px;z-index:5;display:flex;align-items:center;gap:8px;max-width:calc(100% - 20px);padding:2px 4px 2px 10px;border-radius:14px;border:1px solid var(--line);background:var(--bg);box-shadow:0 1px 4px #0002}
.grip{flex:0 0 5px;cursor:col-resize;background:var(--line);background-clip:content-box;padding:0 2px;touch-action:none}
.grip:hover,.grip:focus-visible{background-color:var(--accent)}
.side{flex:0 0 auto;display:flex;flex-direction:column;min-width:0;min-height:0;background:var(--bg)}
.side{flex-direction:row-reverse}
.side.folded{width:auto!important;height:auto!important}
.rail{flex:0 0 68px;display:flex;flex-direction:column;min-height:0;min-width:0;background:var(--bg2);border-left:1px solid var(--line)}
.tabs{flex:1 1 0;min-height:0;display:flex;flex-direction:column;overflow:auto;scrollbar-width:none}
.tab{display:flex;flex-direction:column;align-items:center;justify-content:center;gap:1px;flex:0 1 47px;min-height:38px;padding:0 3px;color:var(--dim);font-size:11px;line-height:14px;white-space:nowrap;border-right:2px solid transparent;border-left:2px solid transparent}
.rail svg{width:16px;height:16px;fill:none;stroke:currentColor;stroke-width:1.4;stroke-linecap:round;stroke-linejoin:round;flex:none}
.tab:hover,.fold:hover{color:var(--text);background:var(--bg3)}
.tab[aria-selected=true]{color:var(--accent);border-right-color:var(--accent);background:var(--bg)}
.side.folded .tab[aria-selected=true]{color:var(--dim);border-color:transparent;background:none}
.fold{flex:0 0 32px;display:flex;align-items:center;justify-content:center;color:var(--dim);border-top:1px solid var(--line)}
.panel{flex:1 1 0;min-height:0;overflow:auto;padding:10px 12px 14px;scrollbar-width:thin}
.panel.flush{padding:0;overflow:hidden}
.panel>.section:first-child,.panel>:empty+.section,.panel>:first-child>.section:first-child{margin-top:0}
.root.medium .search{flex:0 1 150px;min-width:112px}.root.medium .search:focus-within{flex-basis:260px}.root.medium .toolbar .field select{max-width:128px}
.root.medium .toolbar .rule{margin:0 2px}
.root.medium .toolbar .word,.root.medium .legend .n{display:none}
.root.narrow .main{flex-direction:column}
.root.narrow .grip{cursor:row-resize;padding:2px 0}
.root.narrow .side{width:auto!important;height:48%;flex-direction:column}
.root.narrow .rail{flex:0 0 44px;flex-direction:row;border-left:0;border-top:1px solid var(--line)}
.root.narrow .tabs{flex-direction:row;overflow:auto hidden}
.root.narrow .tab{flex:1 0 auto;min-height:0;padding:0 5px;border:0;border-bottom:2px solid transparent}
.root.narrow .tab[aria-selected=true]{border-bottom-color:var(--accent)}
.root.narrow .side.folded .tab[aria-selected=true]{border-color:transparent}
.root.narrow .fold{flex:0 0 36px;border-top:0;border-left:1px solid var(--line)}
.root.narrow .fold svg{transform:rotate(90deg)}
.root:not(.narrow) .side{height:auto!important}
.root.narrow .rule{display:none}
.root:is(.narrow,.short) .legend{flex-wrap:nowrap;overflow-x:auto;scrollbar-width:none;padding-right:28px;mask-image:linear-gradient(90deg,#000 calc(100% - 32px),#0000)}
.root:is(.narrow,.short) .legend>*{flex:none}
.root:is(.narrow,.short) .strip .track{height:20px}
.root.narrow .header{flex-wrap:wrap}.root.narrow .header .figures{text-align:left;flex-basis:100%}
.root.tight .tool.zoom,.root.narrow.short .figures{display:none}
.root.narrow .toolbar .gap{display:none}.root.narrow .search,.root.narrow .toolbar .field,.root.narrow .toolbar select{flex:1 1 120px;max-width:none}

.legend{display:flex;flex-wrap:wrap;align-items:center;gap:2px 12px;padding:5px 12px 0;border-top:1px solid var(--line);border-bottom:5px solid transparent;background-clip:padding-box;font-size:12px;line-height:17px;max-height:86px;flex:none;overflow:auto;scrollbar-width:thin}
.key.reshard b{color:#8a2be2}.root.dark .key.reshard b{color:#d59bff}.key.moved b{color:#4d6478}.root.dark .key.moved b{color:#a9bccd}.key.exposed b{color:#c4281c}.root.dark .key.exposed b{color:#ff8f80}
.legend .what{font-weight:600}.legend .source{color:var(--dim)}
.key{display:inline-flex;align-items:center;gap:5px;white-space:nowrap}
.key i{width:11px;height:11px;border-radius:3px;border:1px solid color-mix(in srgb,var(--text) 30%,transparent)}
.key.unknown i{border:1px dashed var(--dim)}
.key .clip{max-width:170px}
.key i{flex:none}
.key .n{color:var(--dim);font-variant-numeric:tabular-nums}
.ramp{display:inline-flex;align-items:center;gap:6px}
.ramp i{width:130px;height:10px;border-radius:3px;border:1px solid color-mix(in srgb,var(--text) 30%,transparent)}
.strip{display:flex;align-items:stretch;gap:10px;padding:0 12px 6px}
.strip .what{flex:0 0 auto;font-size:12px;color:var(--dim);align-self:center}
.strip .track{position:relative;flex:1 1 0;min-width:0;height:34px;touch-action:none;cursor:crosshair;background:var(--bg2);border-radius:3px}
.strip canvas{display:block;width:100%;height:100%;border-radius:3px}
.status{display:flex;gap:12px;align-items:center;padding:3px 12px;min-height:26px;border-top:1px solid var(--line);font-size:12px;color:var(--dim);background:var(--bg2)}
.status .hover{flex:1 1 0;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.status .work{flex:0 1 auto;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.status .crumbs{flex:0 1 auto;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;max-width:70%;direction:ltr}

.title{font-size:15px;font-weight:650;overflow-wrap:anywhere;margin-bottom:4px}
.section{margin-top:14px}
.section h3{font-size:12px;font-weight:650;color:var(--dim);margin-bottom:4px}
.facts{display:grid;grid-template-columns:minmax(80px,max-content) minmax(0,1fr);gap:2px 12px;margin-top:6px}
.facts dt{color:var(--dim);max-width:184px;overflow-wrap:anywhere}
.facts dd{overflow-wrap:anywhere;min-width:0}
.value,.crumbs{display:block;overflow-wrap:anywhere}
.value .mini,.crumbs .mini,.stack .mini{margin-left:6px}
@media (hover:hover){.facts .mini,.stack .mini{opacity:0}.facts dd:hover .mini,.stack li:hover .mini,.mini:focus-visible{opacity:1}}
.note{color:var(--dim);padding:1px 0}
.headline{display:flex;flex-wrap:wrap;gap:4px 8px;margin:2px 0 10px;padding:0;list-style:none}
.headline li{padding:1px 8px;border-radius:9px;background:var(--bg3);font-size:12px;font-variant-numeric:tabular-nums}
.findings{list-style:none;margin:0;padding:0;counter-reset:finding}
.finding{position:relative;border:1px solid var(--line);border-radius:6px;padding:8px 10px 8px 32px;margin-bottom:8px;overflow-wrap:anywhere}
.finding::before{counter-increment:finding;content:counter(finding);position:absolute;left:10px;top:8px;color:var(--dim);font-weight:650}
.finding p{margin:4px 0}
.finding-title{display:block;text-align:left;font-weight:650;color:var(--text)}
button.finding-title:hover{color:var(--accent);text-decoration:underline}
.finding-line{display:flex;flex-wrap:wrap;gap:2px 8px;align-items:baseline;margin-top:2px}
.finding-line code{white-space:pre-wrap}
.link{color:var(--accent);font-family:var(--mono);font-size:12px;overflow-wrap:anywhere}
.link:hover{text-decoration:underline}
.list li{display:flex;gap:2px 10px;align-items:baseline;flex-wrap:wrap;padding:1px 0}
.list .dim{font-size:12px;overflow-wrap:anywhere}
.list .figured{display:grid;grid-template-columns:minmax(0,1fr) max-content;gap:0 8px}
.figured>span>*{margin-right:10px}
.figure{flex:none;margin-left:auto;padding-left:8px;color:var(--text);font-variant-numeric:tabular-nums;white-space:nowrap}
.mini{font:11px/16px var(--ui);color:var(--dim);border:1px solid var(--line);border-radius:4px;padding:0 6px;background:var(--bg);vertical-align:1px}
.mini:hover:not(:disabled){color:var(--text);background:var(--bg3)}
.tag{font-size:11px;line-height:16px;padding:0 6px;border-radius:8px;background:var(--bg3);color:var(--text);white-space:nowrap;flex:none}
pre.wrap{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--bg2);border:1px solid var(--line);border-radius:4px;padding:6px 8px;max-height:260px;overflow:auto;margin-bottom:4px}
.wrap{overflow-wrap:anywhere}
details summary{cursor:pointer;overflow-wrap:anywhere;color:var(--text)}
.bars .plain,.share .plain{background:color-mix(in srgb,var(--accent) 45%,var(--bg))}
.bars{display:grid;grid-template-columns:fit-content(56%) minmax(48px,1fr) max-content;gap:1px 8px}
.bar{display:grid;grid-column:1/-1;grid-template-columns:minmax(90px,46%) 1fr max-content;grid-template-columns:subgrid;align-items:center;column-gap:8px;width:100%;padding:1px 4px;border-radius:3px}
button.bar:hover{background:var(--bg3)}
.bar-label{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.bar-track{height:10px;min-width:0}
.bar-fill{display:block;height:100%;border-radius:2px;background:var(--accent);border:1px solid color-mix(in srgb,var(--text) 22%,transparent)}
.bar-text{text-align:right;font-variant-numeric:tabular-nums;color:var(--dim)}
.table{border-collapse:collapse;width:100%}
.column{display:flex;flex-direction:column;height:100%;min-height:0}
.column>.note{padding:8px 12px}
.panel.flush>.empty{padding:10px 12px;overflow:auto;height:100%}.examples dt{margin-top:8px}.examples dd{color:var(--dim)}
.bar-row{display:flex;flex-wrap:wrap;align-items:center;gap:6px 8px;padding:8px 12px;border-bottom:1px solid var(--line)}
.bar-row .find{flex:1 1 120px}
.virtual{flex:1 1 0;min-height:0;overflow:auto;position:relative;scrollbar-width:thin}
.space{position:relative;overflow:hidden;min-width:100%}
.rows{position:absolute;left:0;right:0;top:0;will-change:transform}
.result{height:46px;padding:4px 12px;cursor:pointer;border-bottom:1px solid var(--line)}
.result .line{display:flex;gap:10px;align-items:baseline;white-space:nowrap;overflow:hidden}
.result .line.dim{font-size:12px}
.result:hover,.tree-row:hover,.text-line:hover{background:var(--bg2)}
.chosen,.chosen:hover{background:var(--accent-soft)!important}
.tree-row{display:flex;align-items:center;gap:6px;height:26px;padding-right:12px;cursor:pointer}
.virtual:focus-visible .tree-row.focus{box-shadow:inset 0 0 0 2px var(--accent)}
.tree-row .cell{flex:none;width:76px;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.tree-row .cell.share{width:46px;color:var(--dim)}
.tree-row .figure{min-width:44px;text-align:right;color:var(--dim)}
.timelines{display:flex;flex-direction:column;height:100%;min-height:0}
.timelines .chapter,.timelines .chapter>div,.chapter.timelines>div{display:flex;flex-direction:column;flex:0 1 auto;min-height:0}
.timelines .chapters{padding:10px 14px 4px;flex:none}
.timeline-box{flex:0 1 auto;min-height:0;overflow:hidden auto;padding:0;position:relative}
.timeline-box canvas{display:block;position:sticky;top:0;touch-action:none;cursor:grab}
.timelines .note{margin:8px 14px 0}
.timeline-room{position:absolute;top:0;left:0;width:1px;pointer-events:none}
.timeline-box canvas:focus-visible{outline:2px solid var(--accent);outline-offset:-2px}
.twist{width:14px;flex:none;color:var(--dim);text-align:center}
.text .space{overflow:visible}
.text .rows{right:auto;min-width:100%;width:max-content}
.text-line{height:19px;line-height:19px;white-space:pre;padding-right:16px;cursor:pointer}
.text-line .number{display:inline-block;text-align:right;padding:0 8px 0 10px;box-sizing:content-box;color:var(--dim);font:11px/19px var(--mono);user-select:none;position:sticky;left:0;background:inherit}
.text-line{background:var(--bg)}
.text-line.lit{box-shadow:inset 3px 0 var(--accent)}
.text-line.found{background:var(--found)}
.t-name,.t-name.jump{color:var(--t-name)}.jump:hover{text-decoration:underline}
.t-string{color:var(--t-string)}.t-shape{color:var(--t-shape)}.t-opcode{color:var(--t-opcode);font-weight:600}
.t-key,.t-comment{color:var(--t-key)}.t-word{font-weight:700}
.cost,.memory{--compute:#0b7285;--memory:#a63a00;--wire:#6b4ba1}
.root.dark .cost,.root.dark .memory{--compute:#5cc8dc;--memory:#f5a777;--wire:#c8b0f5}
.plot{display:block;width:100%;max-width:760px;height:auto;overflow:visible;margin-top:4px}
.plot text{font:11px var(--ui);fill:var(--dim);font-variant-numeric:tabular-nums}
.plot .grid{stroke:var(--line);stroke-width:1}
.plot .roof{fill:none;stroke:var(--text);stroke-width:2;stroke-linejoin:round}
.plot .dot{cursor:pointer;fill:var(--dim);fill-opacity:.55;stroke:var(--bg);stroke-width:.7}
.plot .dot:hover{fill-opacity:1}
.plot .compute,.plot .vector{fill:var(--compute)}.plot .memory{fill:var(--memory)}
.plot .ring{fill:none;stroke:var(--accent);stroke-width:2;pointer-events:none}
.plot .area{fill:color-mix(in srgb,var(--accent) 30%,var(--bg));stroke:var(--accent);stroke-width:1}
.plot .peak{fill:var(--text)}.plot .marker{stroke:var(--text);stroke-width:1.5;stroke-dasharray:3 2}
.treemap-box{position:relative;max-width:100%}.treemap-box canvas{display:block}
.treemap-box .tip{position:absolute;z-index:2;max-width:260px;padding:3px 7px;pointer-events:none;overflow-wrap:anywhere;font-size:12px;color:var(--text);background:var(--bg);border:1px solid var(--line);border-radius:4px}
.treemap-legend{display:flex;flex-wrap:wrap;gap:2px 14px;margin:4px 0 0;font-size:12px}
.treemap-legend span:before{content:"";display:inline-block;width:12px;height:10px;margin-right:5px;border:1px solid var(--dim);background:var(--part)}
.part-0{--part:#c3e4ea}.part-1{--part:#f8d5c0}.part-2{--part:#dfd2f4}
.root.dark .part-0{--part:#124a56}.root.dark .part-1{--part:#693818}.root.dark .part-2{--part:#46346a}
.measured-heat{display:grid;grid-template-columns:minmax(90px,190px) minmax(0,1fr);gap:0 8px}
.measured-names{list-style:none;margin:0;padding:18px 0 0}
.measured-names li{height:20px;line-height:20px}
.measured-names .link{max-width:100%;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;display:block;line-height:20px}
.measured-cells{overflow-x:auto;min-width:0}
.timeline{cursor:crosshair;max-width:760px}.timeline input{display:block;margin:0;accent-color:var(--accent)}
.list-by{margin-top:6px}
.live-group{border-bottom:1px solid var(--line)}
.live-group summary{display:grid;grid-template-columns:minmax(110px,46%) 72px minmax(30px,1fr) 72px;gap:10px;align-items:baseline;padding:2px 0}
.live-group summary:before{content:none}
.live-group .group-name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;direction:ltr}
.live-group .group-name:before{content:"▸ ";color:var(--dim)}.live-group[open] .group-name:before{content:"▾ "}
.live-group .share{align-self:center;height:8px}
.live-group .num{text-align:right;font-variant-numeric:tabular-nums}
.chip .numbers{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:4px 14px;margin:6px 0}
.chip .numbers .field{justify-content:flex-end}.chip label.field select{max-width:100%}.measured>.controls{margin-top:12px}
.chip input[type=number]{width:92px;text-align:right}
.chip>*{margin-bottom:4px}
.scroll{overflow-x:auto;scrollbar-width:thin;container-type:inline-size;--edge:color-mix(in srgb,var(--text) 22%,transparent);
  background:linear-gradient(90deg,var(--bg) 40%,transparent) 0 0/28px 100% local,linear-gradient(270deg,var(--bg) 40%,transparent) 100% 0/28px 100% local,linear-gradient(90deg,var(--edge),transparent) 0 0/9px 100% scroll,linear-gradient(270deg,var(--edge),transparent) 100% 0/9px 100% scroll;background-repeat:no-repeat}
.figures-table th,.figures-table td{padding:2px 10px 2px 0;text-align:left;font-weight:400;white-space:nowrap}
.figures-table thead th{color:var(--dim);font-size:12px;border-bottom:1px solid var(--line)}
.scope-cell{max-width:150px;overflow:hidden;text-overflow:ellipsis}
.figures-table .num{text-align:right;font-variant-numeric:tabular-nums}
.figures-table tbody tr:hover{background:var(--bg2)}
.figures-table th .link{max-width:min(230px,46cqw);overflow:hidden;text-overflow:ellipsis;white-space:nowrap;display:block}
.figures-table th .what{max-width:min(230px,46cqw);overflow:hidden;text-overflow:ellipsis;display:block;font-size:11px;line-height:13px}
.bound.compute,.bound.vector{color:var(--compute)}.bound.memory{color:var(--memory)}.bound.collective{color:var(--wire)}
.source-files{flex:1;min-height:0;overflow:auto;padding-bottom:12px;scrollbar-width:thin}
.source-file h3{position:sticky;top:0;left:0;display:flex;gap:10px;align-items:baseline;padding:6px 12px;background:var(--bg);font-size:12px;z-index:1;border-bottom:1px solid var(--line)}
.source-list{width:max-content;min-width:100%}
.source-line{display:flex;width:100%;height:19px;font:12px/19px var(--mono);white-space:pre}
.source-line .number{flex:0 0 44px;text-align:right;color:var(--dim);padding-right:10px}
.source-line .heat{flex:0 0 96px;text-align:right;padding-right:10px;font:11px/19px var(--ui);font-variant-numeric:tabular-nums;color:var(--dim)}
.source-line.own{background:linear-gradient(90deg,color-mix(in srgb,var(--t-opcode) 34%,var(--bg)) 0 calc(var(--heat)*1.4),transparent 0) no-repeat 0 0/140px 100%}
.source-line.own .heat,.source-line.own .number{color:var(--text)}
.source-line.hot:hover .code{background:var(--bg3)}
.source-line.of-selection .code{background:color-mix(in srgb,var(--accent) 30%,transparent);box-shadow:-3px 0 var(--accent)}
.source-line.calls-selection .code{box-shadow:-3px 0 color-mix(in srgb,var(--accent) 45%,transparent)}
.source-line.pointed{outline:2px solid var(--accent);outline-offset:-2px}
.unattributed{padding:0 12px}
.cut{color:var(--dim);padding-left:28px;line-height:14px}
.loading,.failed{flex:1;display:grid;place-content:center;justify-items:center;gap:10px;padding:24px;text-align:center}
.loading progress{width:220px}
.failed .action,.primary{border:1px solid var(--line);border-radius:5px;padding:4px 12px;background:var(--bg2)}
@media (prefers-reduced-motion:no-preference){.tool,.tab,.link{transition:background .1s,color .1s}}
@media (forced-colors:active){.key i,.bar-fill{forced-color-adjust:none}}
.controls{display:flex;flex-wrap:wrap;align-items:center;gap:6px 12px;margin:2px 0 6px}
.controls select,.controls input{max-width:100%}.controls label.field{min-width:0;max-width:100%}.controls label.field select{max-width:240px;min-width:0}.controls input[type=search]{flex:1 1 200px}
.figures-table .told td{white-space:normal;padding:4px 0 8px 14px;border-left:2px solid var(--accent)}.told .section{margin:0}
.python-line code{overflow-wrap:anywhere}.python-line .dim{font-size:12px}
.chapters{display:flex;flex-wrap:wrap;gap:2px;margin:8px 0 2px;border-bottom:1px solid var(--line)}
.chapters button{padding:3px 10px;color:var(--dim);border-bottom:2px solid transparent;margin-bottom:-1px}
.chapters button:hover{color:var(--text)}.chapters button[aria-pressed=true]{color:var(--text);font-weight:600;border-bottom-color:var(--accent)}
.collective-table{overflow:auto hidden;border:1px solid var(--line);border-radius:4px}.collective-table>*{min-width:var(--least)}
.collective-sum{margin:0 0 2px;font-variant-numeric:tabular-nums}
.collective-row{display:block;width:100%;height:42px;padding:3px 8px;text-align:left;line-height:18px;font-variant-numeric:tabular-nums}
.collective-row .first{display:grid;grid-template-columns:var(--figures);gap:0 8px}
.collective-row .second{display:grid;grid-template-columns:var(--places);gap:0 10px}
.collective-row:not(.head) .second{color:var(--dim)}
.collective-row span>*{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.collective-row .num{text-align:right}
.collective-row:not(.head):hover{background:var(--bg2)}
.collective-row.head{border-bottom:1px solid var(--line);color:var(--dim)}
.collective-row.head button{padding:0;text-align:inherit;color:inherit;font-size:12px}.collective-row.head .num{text-align:right;margin-left:-8px}
.collective-row.head button[aria-pressed=true]{color:var(--text);font-weight:600}
.origins{margin-top:4px}
.heat-box{overflow:auto;max-height:420px;padding:1px}
.heat canvas,.tiles canvas{display:block;touch-action:pan-x pan-y}
.heat-foot,.heat-legend{display:flex;flex-wrap:wrap;align-items:center;gap:6px;margin-top:4px;font-size:12px;font-variant-numeric:tabular-nums}
.heat-ramp{width:120px;height:10px;border-radius:3px;border:1px solid color-mix(in srgb,var(--text) 30%,transparent)}
.tiles{overflow-x:auto}.tiles label.field{margin-right:12px}.tiles input[type=range]{width:180px;padding:0;accent-color:var(--accent)}
`;
