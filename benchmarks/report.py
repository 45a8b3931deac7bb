"""Renders measurements: lines for a terminal, a table in docs/benchmarks.md, a chart, and JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
from competitors import LIMIT, LIMIT_APART, NO_PEERS, OURS, OURS_POSTGRES
from evaluation import Bar, Line

mpl.use("Agg")

from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs/benchmarks.md", ROOT / "docs/pictures/bench.png"
RESULTS = ROOT / "benchmarks/results/latest.json"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
COLOURS = {LIMIT: "#333333", LIMIT_APART: "#333333", OURS: "#2a7f62", OURS_POSTGRES: "#2a7f62"}
TITLES = "                  fiches   seconds  spread  to limit  no start  start     CPU    MB"
SHOWN = (
    f"![Each competitor's time divided by that of the limit]({PICTURE.relative_to(PAGE.parent)})"
)
CALLED = {
    LIMIT: "limit: bare asyncio + httpx",
    LIMIT_APART: "the same with one client per worker",
    OURS: "**automation_run**",
    OURS_POSTGRES: "automation_run, PostgreSQL",
}


def text(lines: Sequence[Line], bars: Sequence[Bar]) -> str:
    result = [TITLES, *map(_text_line, _sorted(lines)), ""]
    for bar in bars:
        reached = "reached" if bar.is_reached else "MISSED "
        result.append(f"{reached}  {bar.what}: {bar.found} ({bar.wanted})")
    return "\n".join(result)


def table(lines: Sequence[Line], bars: Sequence[Bar], conditions: dict) -> str:
    """Markdown with one row per competitor and one column per size, each cell `seconds (ratio to
    the limit)`; then the targets."""
    sizes = _sizes(lines)
    known = {(line.name, line.fiches): line for line in lines}
    names = dict.fromkeys(line.name for line in _sorted(lines))
    head = ["", *(f"{size:,} fiches" for size in sizes), "peak memory"]
    rows = [
        [
            CALLED.get(name, name),
            *(_cell(known.get((name, s))) for s in sizes),
            _memory(name, lines),
        ]
        for name in names
    ]
    result = (
        f"Medians in seconds, with the ratio to the limit of the same repetition ({_repetitions(lines)}). "
        f"{conditions['date']}, {conditions['machine']}, "
        f"{_load(conditions['loads'])}. "
        f"`{conditions['command']}` repeats it."
    )
    marks = ["---", *("---:" for _ in head[1:])]
    judged = [
        [bar.what, bar.wanted, bar.found, "reached" if bar.is_reached else "**missed**"]
        for bar in bars
    ]
    kept = (["target", "wanted", "found", ""], ["---", "---", "---", "---"], *judged)
    return "\n".join((*_rows((head, marks, *rows)), "", result, "", SHOWN, "", *_rows(kept)))


def _load(loads: Sequence[float]) -> str:
    return (
        f"load {min(loads)} to {max(loads)} at the end of each measurement, including its own"
        if loads
        else "nothing was measured"
    )


def _rows(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in rows]


def _repetitions(lines: Sequence[Line]) -> str:
    """The lowest and highest number of repetitions per size."""
    times = {
        size: [len(line.times) for line in lines if line.fiches == size] for size in _sizes(lines)
    }
    spans = {
        size: "-".join(map(str, sorted({min(each), max(each)}))) for size, each in times.items()
    }
    return ", ".join(f"of {span} at {size:,}" for size, span in spans.items())


def _sizes(lines: Sequence[Line]) -> list[int]:
    return sorted({line.fiches for line in lines})


def renew_page(created: str) -> None:
    """Replace the part of the page between the marks, if it has marks."""
    before, mark, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if mark and end:
        PAGE.write_text(f"{before}{BEGIN}\n{created}\n{END}{after}")


def write_json(lines: Sequence[Line], bars: Sequence[Bar], conditions: dict, more: dict) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    document = {
        "conditions": conditions,
        "lines": [
            asdict(line) | {"seconds": line.seconds, "spread": line.spread}
            for line in _sorted(lines)
        ],
        "bars": [asdict(bar) for bar in bars],
        **more,
    }
    RESULTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def draw(lines: Sequence[Line], conditions: dict) -> None:
    """A bar chart of the ratios to the limit, with one panel per size. Long bars are cut and
    labelled."""
    sizes = sorted({line.fiches for line in lines if line.ratio is not None})
    if not sizes:
        return
    figure, panels = plt.subplots(1, len(sizes), figsize=(5.2 * len(sizes), 4.2), squeeze=False)
    for panel, size in zip(panels[0], sizes, strict=True):
        chosen = [line for line in lines if line.fiches == size and line.ratio is not None]
        _panel(panel, sorted(chosen, key=lambda line: -(line.ratio or 0)), size)
    figure.suptitle(
        f"Time of a whole run divided by that of the physical limit ({conditions['date']})",
        fontsize=12,
    )
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _panel(panel: plt.Axes, chosen: Sequence[Line], size: int) -> None:
    most = 8.0
    colours = [COLOURS.get(line.name, "#b9b9b9") for line in chosen]
    ratios = [line.ratio or 0 for line in chosen]
    drawn = panel.barh(
        [line.name for line in chosen], [min(ratio, most) for ratio in ratios], color=colours
    )
    labels = [f" {ratio:.2f}{'  (cut)' if ratio > most else ''}" for ratio in ratios]
    panel.bar_label(drawn, labels=labels, fontsize=10)
    panel.axvline(1, color="#333333", linewidth=0.8, linestyle=":")
    panel.set_xlim(0, min(max(ratios), most) * 1.25)
    panel.set_title(f"{size:,} fiches", fontsize=11)
    panel.spines[["top", "right"]].set_visible(False)


def _sorted(lines: Sequence[Line]) -> list[Line]:
    first = {name: place for place, name in enumerate(NO_PEERS)}
    return sorted(
        lines, key=lambda line: (line.fiches, first.get(line.name, len(first)), line.seconds)
    )


def _text_line(line: Line) -> str:
    last = line.last
    ratio, over = (
        f"{each:9.2f}" if each is not None else f"{'-':>9}"
        for each in (line.ratio, line.over_start)
    )
    return (
        f"{line.name:16} {line.fiches:7,} {line.seconds:9.2f} {line.spread:6.0%}  {ratio} {over} "
        f"{last.to_first_call:6.2f} {last.busy_seconds:7.1f} {last.megabytes:5.0f}"
    )


def _cell(line: Line | None) -> str:
    if line is None:
        return "-"
    return f"{line.seconds:.1f}" + (f" ({line.ratio:.2f})" if line.ratio is not None else "")


def _memory(name: str, lines: Sequence[Line]) -> str:
    return f"{max(line.last.megabytes for line in lines if line.name == name):.0f} MB"
