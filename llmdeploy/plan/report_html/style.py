"""The page's style: light and dark by what the reader prefers, light on paper."""

STYLE = """
:root { color-scheme: light dark;
  --page: #f6f6f3; --card: #fcfcfb; --line: #dedcd5; --grid: #e9e7e1; --ink: #0b0b0b;
  --soft: #52514e; --faint: #6f6d68; --good: #006300; --bad: #b3261e;
  --weights: #2a78d6; --packed: #86b6ef; --activation: #eda100; --graph: #4a3aa7;
  --other: #8f8d86; --kv: #1baf7a; --free: #ecebe6; --first: #2a78d6; --second: #d9480f;
  --third: #1baf7a; --quiet: #a5a39b; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0d0d0d; --card: #1a1a19; --line: #383835; --grid: #2b2b29; --ink: #ffffff;
  --soft: #c3c2b7; --faint: #9a988f; --good: #4cc24c; --bad: #ff8a80;
  --weights: #3987e5; --packed: #184f95; --activation: #c98500; --graph: #9085e9;
  --other: #77756e; --kv: #199e70; --free: #2b2b29; --first: #3987e5; --second: #ff8a4c;
  --third: #199e70; --quiet: #6f6d68; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: anywhere; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; font-weight: 650; }
h2 { font-size: 17px; margin: 0 0 2px; font-weight: 620; }
h3 { font-size: 14px; margin: 16px 0 4px; font-weight: 620; }
p { margin: 0 0 10px; color: var(--soft); }
.note { font-size: 13px; color: var(--faint); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 16px; margin-top: 16px; break-inside: avoid-page; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin-top: 16px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 14px; }
.tile b { display: block; font-size: 22px; line-height: 1.3; font-weight: 650; }
.tile small { font-size: 14px; font-weight: 500; overflow-wrap: normal; }
.tile span { font-size: 13px; color: var(--faint); }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
.pair section { min-width: 0; }
svg { display: block; width: 100%; max-width: 640px; height: auto; margin-top: 8px; }
svg text { font: 10.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--soft); }
svg .strong { fill: var(--ink); font-weight: 620; }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 8px 0; font-size: 13px;
  color: var(--soft); }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 3px;
  margin-right: 6px; vertical-align: -1px; }
.bar { display: flex; height: 22px; gap: 2px; border-radius: 4px; overflow: hidden;
  background: var(--free); }
.bar i { display: block; height: 100%; }
.device { display: grid; grid-template-columns: minmax(0, 220px) minmax(0, 1fr); gap: 4px 16px;
  align-items: center; margin-top: 10px; font-size: 13px; }
.device > :last-child { grid-column: 2; color: var(--faint); }
.rows { display: grid; margin-top: 8px; font-size: 14px; }
.row { display: grid; gap: 2px 16px; padding: 7px 0; border-top: 1px solid var(--grid);
  grid-template-columns: var(--columns); }
.row > * { min-width: 0; }
.head { color: var(--faint); font-size: 12.5px; border-top: 0; }
.number { font-variant-numeric: tabular-nums; }
.soft { color: var(--soft); }
.yes { color: var(--good); font-weight: 620; }
.no { color: var(--bad); font-weight: 620; }
.formula { font: 12.5px/1.5 ui-monospace, "Cascadia Mono", Consolas, monospace;
  color: var(--soft); }
details { margin-top: 8px; }
summary { cursor: pointer; color: var(--soft); }
ul { margin: 6px 0 0; padding-left: 20px; color: var(--soft); }
@media (max-width: 760px) {
  .pair { grid-template-columns: minmax(0, 1fr); }
  .device { grid-template-columns: minmax(0, 1fr); }
  .device > :last-child { grid-column: 1; }
  .head { display: none; }
  .row { grid-template-columns: minmax(0, 1fr); }
  .row > [data-name]:not(:empty)::before { content: attr(data-name) ": "; color: var(--faint); } }
@media print { :root { color-scheme: light; }
  body { background: #fff; font-size: 12px; } main { max-width: none; padding: 0; }
  section, .tile { border-color: #bbb; } details > *:not(summary) { display: block; } }
"""
