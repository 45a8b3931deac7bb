"""`automation pricing runs reconcile`: whether the shop still has the prices that a run has written."""

from typing import Annotated

import typer
from rich.text import Text

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import counted, say
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.cli.pricing.arguments import RunId, asking_the_shop
from automation_pipeline.cli.pricing.prices import amount, percent
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.reconciliation import Mismatch, MismatchSeverity, ReconciliationReport
from automation_pipeline.pricing.domain.rule_run import RuleRun

COLOURS = {MismatchSeverity.CRITICAL: "red", MismatchSeverity.WARNING: "yellow"}
GRAVE = frozenset(COLOURS)


def reconcile(
    run_id: RunId,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Plan a new run that writes again what was found changed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the prices in the shop with those that the run has applied. Exit 1 when any differs by more than the
    smallest coin.

    For example: automation pricing runs reconcile 7 --repair, then automation pricing runs apply 8
    """
    our = desk().pricing.runs
    with asking_the_shop("Reading prices", quiet=as_json):
        report = our.reconcile(run_id)
    planned = our.repair(run_id) if repair and report.details else None
    if as_json:
        print_json({**as_document(report), "repairRunId": planned and str(planned.id)})
    else:
        _print_report(report, planned)
    if any(mismatch.severity in GRAVE for mismatch in report.details):
        raise typer.Exit(1)


def _print_report(report: ReconciliationReport, planned: RuleRun | None) -> None:
    if report.details:
        columns = ("target", "sku", "expected", "in the shop", "difference", "weight")
        print_fitted_table(columns, map(_mismatch, report.details), texts={"sku", "difference"})
    if report.unverified:
        columns = ("target", "not verified because")
        print_fitted_table(columns, ((one.target_id, one.reason) for one in report.unverified), texts={columns[1]})
    say(
        f"Run {report.run_id}: {counted(report.total_checked, 'price')} compared, {report.mismatches} differ, "
        f"{len(report.unverified)} could not be read."
    )
    if planned is not None:
        prices = counted(planned.total_targets, "price")
        say(f"Run {planned.id} would write {prices} again: `automation pricing runs apply {planned.id}`.")
    elif report.details:
        say(f"Write them again: `automation pricing runs reconcile {report.run_id} --repair` plans a run that does.")


def _mismatch(one: Mismatch) -> tuple[object, ...]:
    return (
        one.target_id,
        one.sku_id,
        amount(one.expected_price, one.currency),
        amount(one.actual_price, one.actual_currency),
        percent(one.expected_price, one.actual_price) if one.difference is not None else "another currency",
        Text(one.severity, COLOURS.get(one.severity, "")),
    )
