"""What people read in Dagster about runs of pricing rules, about checks of their prices, and about a day of them."""

from collections.abc import Sequence

import dagster as dg

from automation_pipeline.core.instants import iso
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.markdown import table
from automation_pipeline.pricing.domain.day import DayRuns
from automation_pipeline.pricing.domain.money import PriceDocument, format_amount
from automation_pipeline.pricing.domain.reconciliation import ReconciliationReport
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTarget

MOST_TARGETS = 20
MOST_RUNS = 50

Page = dict[str, dg.MetadataValue]


def run_page(run: RuleRun, targets: Sequence[RuleTarget]) -> Page:
    counts = {name: count for name, count in run.targets.model_dump().items() if count}
    texts = {
        "error": run.error_message,
        "resume_at": None if run.resume_at is None else iso(run.resume_at),
        "targets": table(("variant", "before", "after", "status", "error"), map(_target_cells, targets)),
    }
    return {
        "run": metadata.text(run.id),
        "rule": metadata.text(f"{run.rule_name} (version {run.rule_version})"),
        "status": metadata.text(run.status),
        **{name: metadata.integer(count) for name, count in counts.items()},
        "skipped": metadata.integer(run.skipped),
        "blocked": metadata.integer(run.blocked),
        **_rate(run.success_rate),
        **{name: metadata.markdown(text) for name, text in texts.items() if text},
    }


def reports_page(reports: Sequence[ReconciliationReport]) -> Page:
    found = [
        (f"run {report.run_id}", one.sku_id or one.target_id, one.expected_price, one.actual_price, one.severity)
        for report in reports
        for one in report.details
    ]
    found_table = table(("run", "sku", "expected", "actual", "severity"), found[:MOST_TARGETS])
    return {
        "runs": metadata.integer(len(reports)),
        "checked": metadata.integer(sum(report.total_checked for report in reports)),
        "mismatches": metadata.integer(sum(report.mismatches for report in reports)),
        "unverified": metadata.integer(sum(len(report.unverified) for report in reports)),
        **({"details": metadata.markdown(found_table)} if found_table else {}),
    }


def day_page(day: DayRuns) -> Page:
    rows = [
        (
            one.id,
            one.rule_name,
            one.project_id,
            one.trigger,
            one.status,
            one.applied,
            one.failed,
            _seconds(one.apply_ms),
        )
        for one in day.runs[:MOST_RUNS]
    ]
    runs_table = table(("run", "rule", "project", "trigger", "status", "applied", "failed", "seconds"), rows)
    return {
        "runs": metadata.integer(len(day.runs)),
        "applied": metadata.integer(day.applied),
        "failed": metadata.integer(day.failed),
        "dead_letters": metadata.integer(day.dead_letters),
        **_rate(None if day.success_rate is None else float(day.success_rate)),
        **({"table": metadata.markdown(runs_table)} if runs_table else {}),
    }


def _rate(rate: float | None) -> Page:
    return {} if rate is None else {"success_rate": metadata.real(rate)}


def _target_cells(target: RuleTarget) -> tuple[object, ...]:
    name = target.title or target.sku_id or target.variant_id or target.product_id
    return name, _price(target.before), _price(target.after), target.status, target.error_message or ""


def _price(price: PriceDocument) -> str:
    return f"{format_amount(price.unit_amount, price.currency)} {price.currency}"


def _seconds(milliseconds: int | None) -> str:
    return "" if milliseconds is None else f"{milliseconds / 1000:.1f}"
