/** The style sheet of planning pages, adopted by their shadow root. */
export const CSS = `
:host{display:block;color-scheme:light dark}
*{box-sizing:border-box}
[hidden]{display:none!important}
.plan{
  --bg:#fff;--bg2:#f6f8fa;--bg3:#eaeef2;--line:#d4dae1;--text:#1c2530;--dim:#57636f;--accent:#0b57d0;--accent-soft:#e2ecfd;
  --warn:#8a5300;--heat:11,87,208;
  --c0:#3b76d6;--c1:#d97a2b;--c2:#2f9e6e;--c3:#9b5fc0;--c4:#c2455b;--c5:#7d8791;--c6:#b59a1c;--c7:#2a9bb5;--c8:#6b4f3a;--c9:#e58bb6;--c10:#1d4f91;--c11:#8fbf5a;
  --mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
  color-scheme:light;background:var(--bg);color:var(--text);font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
  padding:14px 16px 20px;text-align:left;border:1px solid var(--line);border-radius:6px}
.plan.page{border:0;border-radius:0;max-width:1360px;margin:0 auto;min-height:100%}
.plan.dark{--bg:#14181d;--bg2:#1a2027;--bg3:#262e37;--line:#37424e;--text:#e4eaf0;--dim:#a3b0bd;--accent:#7db4ff;--accent-soft:#1d3552;
  --warn:#f0c063;--heat:125,180,255;
  --c0:#6ea3f5;--c1:#eda25f;--c2:#62c79a;--c3:#c195e3;--c4:#ea8295;--c5:#98a3ae;--c6:#d8c04e;--c7:#63c5dc;--c8:#b08d72;--c9:#f2b4d1;--c10:#9db8e0;--c11:#b5dc8a;color-scheme:dark}
h2,h3,p,pre,dl,dd,ul{margin:0;padding:0}
h2{font-size:17px;margin-bottom:8px;overflow-wrap:anywhere}
h3{font-size:14px;margin-bottom:4px}
h3:not(:first-child){margin-top:14px}
section{margin-top:18px;min-width:0}
section:first-of-type{margin-top:0}
.note{color:var(--dim);max-width:90ch;margin-bottom:6px}
.status{color:var(--warn);min-height:1.4em}
.status:not(:empty){position:sticky;bottom:0;background:var(--bg);padding:4px 0;z-index:2}
.facts{display:flex;flex-wrap:wrap;gap:4px 26px}
.facts div{display:flex;gap:8px}.facts dt{color:var(--dim)}.facts dd{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.wide{overflow:auto;max-height:420px;border:1px solid var(--line);border-radius:6px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;min-width:100%}
th{position:sticky;top:0;background:var(--bg2);color:var(--dim);font-size:12px;font-weight:600;text-align:left;z-index:1}
th button{font-weight:600}
th,td{padding:3px 12px 3px 8px;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:top}
td.n,th.n{text-align:right}
tr[aria-selected=true]{background:var(--accent-soft)}
tr.front td:first-child{box-shadow:inset 3px 0 var(--accent)}
tbody tr[tabindex]{cursor:pointer}
tbody tr[tabindex]:hover{background:var(--bg2)}
pre{font:12px/1.5 var(--mono);background:var(--bg2);border:1px solid var(--line);border-radius:6px;padding:8px 10px;overflow:auto;max-height:320px}
button,select,input{font:inherit;color:inherit}
button.action,select,input[type=number]{height:28px;padding:0 10px;border:1px solid var(--line);border-radius:5px;background:var(--bg)}
button.action{cursor:pointer}button.action:hover:not(:disabled){background:var(--bg3)}
button:disabled{opacity:.45}
th button{background:none;border:0;padding:0;cursor:pointer;color:inherit}
.bar{display:flex;flex-wrap:wrap;gap:8px 14px;align-items:center;margin:6px 0}
label{display:inline-flex;gap:6px;align-items:center;color:var(--dim)}
label select,label input,label output{color:var(--text)}
label output{min-width:5ch;font-variant-numeric:tabular-nums}
input[type=range]{width:150px;accent-color:var(--accent)}
input[type=number]{width:9em}
svg{display:block;max-width:100%;overflow:visible}
svg text{fill:var(--text);font:11px system-ui,sans-serif}
svg .dim{fill:var(--dim)}svg .axis{stroke:var(--line)}
svg .frontier{fill:none;stroke:var(--accent);stroke-width:1.5}
svg .dot{fill:var(--c5);fill-opacity:.6;cursor:pointer}svg .dot.front{fill:var(--accent);fill-opacity:1}
svg .dot.chosen{stroke:var(--text);stroke-width:2}
svg .dot:focus-visible,svg [tabindex]:focus-visible{outline:2px solid var(--accent)}
.heat td{text-align:center;min-width:76px;border-right:1px solid var(--line)}
.heat th:first-child{left:0;z-index:2}
.heat tbody th{position:sticky;left:0;font-weight:500;color:var(--text)}
.heat td.marked{box-shadow:inset 0 0 0 2px var(--c1)}
.k0{fill:var(--c0);background:var(--c0)}.k1{fill:var(--c1);background:var(--c1)}.k2{fill:var(--c2);background:var(--c2)}.k3{fill:var(--c3);background:var(--c3)}
.k4{fill:var(--c4);background:var(--c4)}.k5{fill:var(--c5);background:var(--c5)}.k6{fill:var(--c6);background:var(--c6)}.k7{fill:var(--c7);background:var(--c7)}
.k8{fill:var(--c8);background:var(--c8)}.k9{fill:var(--c9);background:var(--c9)}.k10{fill:var(--c10);background:var(--c10)}.k11{fill:var(--c11);background:var(--c11)}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;color:var(--dim);margin:4px 0}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
svg .over{stroke:var(--bg);stroke-width:.6}
svg .line{fill:none;stroke:var(--accent);stroke-width:1.2}
svg text.on{fill:#fff;pointer-events:none}.plan.dark svg text.on{fill:#14181d}
iframe{width:100%;height:640px;border:1px solid var(--line);border-radius:6px;background:var(--bg)}
:focus-visible{outline:2px solid var(--accent);outline-offset:-2px;border-radius:3px}
`;
