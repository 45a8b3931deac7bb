"""One run as people and scripts read it: how it stands, what it chose, why fiches did not succeed, and who was told."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import cast

from rich.text import Text

from automation_pipeline.automation.domain.phases import PhaseLength
from automation_pipeline.automation.domain.run import FicheOutcome, OutcomeStatus, Phase, Run
from automation_pipeline.automation.domain.run_record import RunNotification
from automation_pipeline.automation.store.run_story import RunStory
from automation_pipeline.cli.output import one_line, print_facts, print_table

COLOURS = {
    OutcomeStatus.SUCCESSFUL: "green",
    OutcomeStatus.FAILED: "red",
    OutcomeStatus.IGNORED: "yellow",
    OutcomeStatus.PENDING: "cyan",
}
MOST_NAMED = 5
# What a bug leaves behind is for those who read the database.
NOT_FOR_PEOPLE = {"stack"}
# The days that the CRM did not give are told as the run's trouble.
TOLD_ELSEWHERE = {"revalidation_failures"}


def show(story: RunStory) -> None:
    run = story.run
    print_facts(
        {
            "run": f"{run.id} of schedule {run.schedule_id}, {run.trigger}{_origin(run)}",
            "status": f"{run.status} ({run.phase})" if run.phase else run.status,
            "attempt": run.attempt,
            "queued": f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC",
            "began": run.began_at and f"{run.began_at:%Y-%m-%d %H:%M:%S} UTC",
            "ended": run.completed_at and f"{run.completed_at:%Y-%m-%d %H:%M:%S} UTC",
            "seconds": seconds_of(run),
            "time": _time(story.phases),
            "fiches": conservation(run),
            "work": _work(story),
            "error": run.error_message and Text(run.error_message, "red"),
            "dagster run": run.dagster_run_id,
            **{f"selection {name}": words for name, words in _told(run.selection_summary, TOLD_ELSEWHERE)},
            **{f"trouble {name}": words for name, words in _told(run.error_details)},
            **{f"{status} because": _counts(reasons) for status, reasons in story.reasons.items()},
        }
    )
    _show_notifications(story.notifications)
    show_outcomes(story)


def show_outcomes(story: RunStory) -> None:
    """A row a fiche, in the order of selection; nothing where nothing is selected."""
    if story.fiches:
        print_table(("fiche", "outcome", "recordings", "reason", "why"), map(_outcome, story.fiches))


def conservation(run: Run) -> str | Text:
    """The law that every selected fiche has ended once; a run that breaks it is a bug, and red."""
    chosen = f"{run.selected_fiches} selected"
    if run.completed_at is None:
        return chosen
    ended = run.successful_fiches + run.failed_fiches + run.ignored_fiches
    counts = f"{run.successful_fiches} successful + {run.failed_fiches} failed + {run.ignored_fiches} ignored"
    if ended == run.selected_fiches:
        return f"{chosen} = {counts}"
    return Text(f"{chosen}, and not {ended} = {counts}", "red")


def seconds_of(run: Run) -> str | None:
    return None if run.duration_ms is None else f"{run.duration_ms / 1000:.1f}"


def _origin(run: Run) -> str:
    return "" if run.retry_of_run_id is None else f" of run {run.retry_of_run_id}"


def _time(phases: Sequence[PhaseLength]) -> str | None:
    """Where it went; to end a run takes none worth telling."""
    told = [length for length in phases if length.phase is not Phase.FINALIZING]
    return ", ".join(f"{length.phase} {length.seconds:.1f} s" for length in told) or None


def _work(story: RunStory) -> str:
    done = story.progress
    return f"{done.fetched} fetched, {done.transcribed} transcribed, {done.audited} audited by {done.audits} audits"


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in reasons.items())


def _told(details: Mapping[str, object] | None, without: Set[str] = NOT_FOR_PEOPLE) -> Iterator[tuple[str, str]]:
    return (
        (name.replace("_", " "), words)
        for name, value in (details or {}).items()
        if name not in without and (words := one_line(_brief(value)))
    )


def _brief(value: object) -> str:
    """JSON in a line, without what says nothing. A long list is counted, and its first entries stand for it."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return ", ".join(f"{name} {_brief(entry)}" for name, entry in entries if entry)
    if isinstance(value, list):
        listed = cast("Sequence[object]", value)
        named = "; ".join(_brief(entry) for entry in listed[:MOST_NAMED])
        return f"{len(listed)}: {named}; ..." if len(listed) > MOST_NAMED else named
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _show_notifications(rows: Sequence[RunNotification]) -> None:
    if rows:
        print_table(
            ("notified by", "receiver", "delivery", "attempts", "trouble"),
            ((row.channel, row.target, row.status, row.attempts, row.last_error) for row in rows),
        )


def _outcome(fiche: FicheOutcome) -> tuple[object, ...]:
    why = fiche.error or fiche.ignore_reason
    return (fiche.fiche_id, Text(fiche.status, COLOURS[fiche.status]), fiche.recordings_count, fiche.reason, why)
