"""The injected faults, as a table for people and as a document for machines."""

from collections import Counter
from collections.abc import Sequence

from automation_pipeline_tests.survival.plan import Kind
from automation_pipeline_tests.survival.rounds import Outcome


def table(outcomes: Sequence[Outcome], seconds: float) -> str:
    result = document(outcomes, seconds)
    lines = [f"{'fault':15}{'injected':>9}{'survived':>9}{'recovery: median':>23}{'longest':>9}"]
    for kind, figures in result["faults"].items():
        median, longest = (
            f"{figures[name]:.1f} s" for name in ("median_seconds", "longest_seconds")
        )
        lines.append(
            f"{kind:15}{figures['injected']:>9}{figures['survived']:>9}{median:>23}{longest:>9}"
        )
    repeated = (
        ", ".join(f"{n} of {route}" for route, n in sorted(result["repeated_calls"].items()))
        or "none"
    )
    lines += [
        (
            f"{result['injected']} faults in {len(outcomes)} runs "
            f"({', '.join(f'{n} {s}' for s, n in result['runs'].items())})"
        ),
        f"Not counted, because they were injected after the end of their run: {result['late']}",
        f"Calls repeated because a fault interrupted them or a storm refused them: {repeated}",
        f"Events and messages sent again because of a fault of their sender: {result['sent_again']}",
        f"{len(result['violations'])} violations, {seconds / 60:.1f} minutes",
    ]
    return "\n".join(lines)


def document(outcomes: Sequence[Outcome], seconds: float) -> dict:
    every = [(one, not outcome.violations) for outcome in outcomes for one in outcome.injected]
    injected = [(one, survived) for one, survived in every if not one.late]
    repeated: Counter[str] = Counter()
    for outcome in outcomes:
        repeated.update(outcome.repeated)
    faults = {}
    for kind in Kind:
        mine = [(one, survived) for one, survived in injected if one.kind is kind]
        times = sorted(one.recovery_seconds for one, _ in mine if one.recovery_seconds is not None)
        if mine:
            faults[str(kind)] = {
                "injected": len(mine),
                "survived": sum(survived for _, survived in mine),
                "median_seconds": times[len(times) // 2] if times else 0.0,
                "longest_seconds": times[-1] if times else 0.0,
            }
    return {
        "injected": len(injected),
        "late": len(every) - len(injected),
        "faults": faults,
        "runs": dict(Counter(outcome.status or "unended" for outcome in outcomes)),
        "repeated_calls": dict(repeated),
        "sent_again": sum(outcome.sent_again for outcome in outcomes),
        "violations": [violation for outcome in outcomes for violation in outcome.violations],
        "minutes": round(seconds / 60, 1),
    }
