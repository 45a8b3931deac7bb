"""How the page of a run looks: light or dark as its reader's system, and narrow enough for a phone."""

STYLE = """
:root { color-scheme: light dark; --ink: #1e293b; --soft: #64748b; --ground: #ffffff; --panel: #f5f7fa;
  --line: #dfe5ec; --good: #14795b; --warn: #8f5b00; --bad: #b3263e; --link: #1d5fbf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e2e8f0; --soft: #98a6b9; --ground: #12171f; --panel: #1b222d;
  --line: #313c4b; --good: #5fd0a6; --warn: #e8b65a; --bad: #ff8497; --link: #8fbcff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; color: var(--ink); background: var(--ground);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 1rem 0 0.25rem; }
a { color: var(--link); } .soft { color: var(--soft); } p { margin: 0.4rem 0; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.word { font-weight: 600; white-space: nowrap; }
.law { display: flex; flex-wrap: wrap; gap: 0.5rem; margin: 1rem 0; }
.law div { flex: 1 1 6rem; padding: 0.5rem 0.75rem; background: var(--panel); border-radius: 0.5rem; }
.law b { display: block; font-size: 1.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.93rem; }
th, td { text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  padding: 0.35rem 0.75rem 0.35rem 0; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; } td { min-width: 4rem; overflow-wrap: break-word; }
details { margin: 0.5rem 0; padding: 0.5rem 0.75rem; background: var(--panel); border-radius: 0.5rem; }
summary { cursor: pointer; }
blockquote { margin: 0.3rem 0 0.3rem 0.5rem; padding-left: 0.75rem; border-left: 3px solid var(--line); }
ul { margin: 0.2rem 0; padding-left: 1.2rem; } :target { scroll-margin-top: 4rem; }
@media print { details { break-inside: avoid; } }
"""
