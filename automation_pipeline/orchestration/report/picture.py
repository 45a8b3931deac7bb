"""The picture of a day: mean score by groupe beside failures by cause."""

import io
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from automation_pipeline.automation.domain.quality import QualityDay
from automation_pipeline.orchestration.report.frames import Line

MOST_BARS = 10
LONGEST_LABEL = 26
INK, SCORE, FAILURE = "#334155", "#2a9d8f", "#d1495b"


def draw(quality: QualityDay, groupes: Sequence[Line]) -> bytes:
    """A PNG of a few dozen kilobytes; the biggest groupes and the most frequent causes, if there are many."""
    figure = Figure(figsize=(9, 3.4), dpi=80, layout="constrained", facecolor="white")
    scores, failures = figure.subplots(1, 2)
    biggest = sorted(groupes[:-1], key=lambda line: (-line[1], line[0]))[:MOST_BARS]
    scored = {line[0]: line[5] for line in biggest if line[5] is not None}
    _bars(scores, "Mean score by groupe, %", scored, SCORE, "No completed audit")
    scores.set_xlim(0, 100)
    causes = dict(list(quality.failures.items())[:MOST_BARS])
    _bars(failures, "Failures by cause", causes, FAILURE, "No failure")
    failures.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(f"{quality.day:%A %d %B %Y}", color=INK)
    written = io.BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()


def _bars(axes: Axes, title: str, bars: Mapping[str, float], colour: str, without: str) -> None:
    axes.set_title(title, fontsize=10, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=INK)
    # A dollar sign in a name is no formula.
    axes.set_yticks(range(len(bars)), [_short(name) for name in bars], parse_math=False)
    axes.invert_yaxis()
    if not bars:
        axes.text(0.5, 0.5, without, ha="center", va="center", transform=axes.transAxes, color=INK)
        return
    drawn = axes.barh(range(len(bars)), list(bars.values()), color=colour)
    axes.bar_label(drawn, [f"{value:g}" for value in bars.values()], padding=2, fontsize=8, color=INK)


def _short(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
