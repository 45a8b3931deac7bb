"""Runs of pricing rules on a screen: how they stand, target by target, and what has moved."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import minute, say
from automation_pipeline.cli.output import one_line, print_facts
from automation_pipeline.cli.pricing.next_steps import next_step
from automation_pipeline.cli.pricing.preview_page import picked, skipped_by_reason, variant_name
from automation_pipeline.cli.pricing.prices import change, price
from automation_pipeline.pricing.domain.policy import Policy
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTarget
from automation_pipeline.pricing.domain.run_log import LoggedMove
from automation_pipeline.pricing.domain.states import RollbackState, RunState, TargetState

RUN_COLOURS = {
    RunState.APPLIED: "green",
    RunState.PARTIAL: "yellow",
    RunState.FAILED: "red",
    RunState.APPLYING: "cyan",
    RunState.QUEUED: "cyan",
}
TARGET_COLOURS = {
    TargetState.APPLIED: "green",
    TargetState.FAILED: "red",
    TargetState.APPLYING: "cyan",
    TargetState.QUEUED: "cyan",
}


def print_runs(runs: Iterable[RuleRun]) -> None:
    """Left alone and blocked variants are told by `show`."""
    print_fitted_table(
        ("id", "rule", "project", "status", "by", "made (UTC)", "targets"),
        (
            (r.id, f"{r.rule_id} {r.rule_name}", r.project_id, _status(r), r.trigger, minute(r.created_at),
             target_counts(r))
            for r in runs
        ),
        texts={"rule", "project", "status", "targets"},
    )  # fmt: skip


def print_run(run: RuleRun, policy: Policy | None) -> None:
    print_facts(
        {
            "run": f"{run.id} of rule {run.rule_id}, {run.rule_name}, version {run.rule_version}{_parent(run)}",
            "project": run.project_id,
            "shop": run.shop,
            "status": _status(run),
            "made": f"{_second(run.created_at)} by {run.created_by} ({run.trigger})",
            "approved": run.approved_by and f"{_second(run.approved_at)} by {run.approved_by}",
            "planned": _second(run.previewed_at),
            "queued": _second(run.queued_at),
            "began": _second(run.started_at),
            "ended": _second(run.finished_at),
            "goes on": _second(run.resume_at),
            "cancelled": run.cancel_requested_at and f"asked for {_second(run.cancel_requested_at)}",
            "picked": picked(run),
            "left alone": ", ".join(f"{count} {reason}" for reason, count in skipped_by_reason(run).items()) or None,
            "targets": target_counts(run),
            "success": None if run.success_rate is None else f"{run.success_rate * 100:.1f} %",
            "rollback": None if run.rollback_state is RollbackState.NONE else run.rollback_state.lower(),
            "trouble": _trouble(run),
        }
    )
    step = next_step(run, policy)
    if step:
        say(step)


def print_run_targets(targets: Iterable[RuleTarget]) -> None:
    print_fitted_table(
        ("target", "variant", "sku", "before", "after", "change", "status", "tries", "why"),
        map(_target, targets),
        texts={"variant", "sku", "why"},
    )


def print_log(moves: Iterable[LoggedMove]) -> None:
    for move in moves:
        why = f": {one_line(move.reason)}" if move.reason else ""
        what = f"{move.machine} {move.entity_id}"
        say(f"{move.at:%Y-%m-%d %H:%M:%S}  {what:<18}  {move.from_state} -> {move.to_state}  by {move.actor}{why}")


def target_counts(run: RuleRun) -> str | None:
    counts = {name: count for name, count in run.targets.model_dump().items() if count and name != "cancelled"}
    if not counts:
        return None
    words = " + ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
    cancelled = f" ({run.targets.cancelled} of them cancelled)" if run.targets.cancelled else ""
    return f"{run.total_targets} = {words}{cancelled}"


def outcome(run: RuleRun) -> str:
    """How a run has ended, in a sentence."""
    return f"Run {run.id} is {run.status}: {target_counts(run) or 'no target'}."


def _status(run: RuleRun) -> Text:
    wish = f", {run.wish} is asked for" if run.wish else ""
    return Text(f"{run.status}{wish}", RUN_COLOURS.get(run.status, ""))


def _parent(run: RuleRun) -> str:
    return "" if run.parent_run_id is None else f", made from run {run.parent_run_id}"


def _trouble(run: RuleRun) -> Text | None:
    told: Sequence[str] = [words for words in (run.error_type, run.error_message) if words]
    return Text(one_line(": ".join(told)), "red") if told else None


def _second(instant: object) -> str | None:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC" if instant else None


def _target(target: RuleTarget) -> tuple[object, ...]:
    before, after = target.before, target.after
    return (
        target.id,
        variant_name(target.title, target.product_id, target.variant_id),
        target.sku_id,
        price(before),
        price(after),
        change(before.unit_amount, after.unit_amount, before.currency),
        Text(target.status, TARGET_COLOURS.get(target.status, "")),
        target.attempts or "",
        _why(target),
    )


def _why(target: RuleTarget) -> str:
    if target.error_type is None:
        return one_line(target.error_message or "")
    again = "" if target.error_retryable else ", not worth another try as things are"
    return one_line(f"{target.error_type}{again}: {target.error_message or ''}")
