"""Price runs and reconciliations in Dagster: launches and metadata."""

from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.orchestration.job_registry import config_of
from automation_pipeline.orchestration.ops import (
    Markdown,
    Metadata,
    as_metadata,
    check_ids,
    id_in,
    owner_of,
    table,
)
from automation_pipeline.pricing.events import request_key
from automation_pipeline.pricing.models.runs import RuleRun, RuleTarget, RuleTrigger
from automation_pipeline.pricing.models.shop import PriceDocument, price_text
from automation_pipeline.pricing.planning import plan_run, preview_rule
from automation_pipeline.pricing.runs import cancel_run, postpone_failed_run, request_rule_run
from automation_pipeline.pricing.worker import work_run
from automation_pipeline.storage.run_requests import mark_taken

if TYPE_CHECKING:
    from automation_pipeline.pricing.rules.monitoring import DayRuns, ReconciliationReport

MOST_TARGETS = 20
MOST_RUNS = 50


def run_metadata(run: RuleRun, targets: Sequence[RuleTarget]) -> Metadata:
    cells = [
        (
            target.title or target.sku_id or target.variant_id or target.product_id,
            _price(target.before),
            _price(target.after),
            target.status,
            target.error_message or "",
        )
        for target in targets
    ]
    return as_metadata(
        {
            "run": str(run.id),
            "rule": f"{run.rule_name} (version {run.rule_version})",
            "status": run.status,
            **{name: count for name, count in run.targets.model_dump().items() if count},
            "skipped": run.skipped,
            "blocked": run.blocked,
            "success_rate": None if run.success_rate is None else float(run.success_rate),
            "error": Markdown(run.error_message or ""),
            "resume_at": None if run.resume_at is None else Markdown(iso(run.resume_at)),
            "targets": table(("variant", "before", "after", "status", "error"), cells),
        }
    )


def _price(price: PriceDocument) -> str:
    return price_text(price.unit_amount, price.currency)


def reports_metadata(reports: "Sequence[ReconciliationReport]") -> Metadata:
    found = [
        (
            f"run {report.run_id}",
            one.sku_id or one.target_id,
            one.expected_price,
            one.actual_price,
            one.severity,
        )
        for report in reports
        for one in report.details
    ]
    return as_metadata(
        {
            "runs": len(reports),
            "checked": sum(report.total_checked for report in reports),
            "mismatches": sum(report.mismatches for report in reports),
            "unverified": sum(len(report.unverified) for report in reports),
            "details": table(
                ("run", "sku", "expected", "actual", "severity"), found[:MOST_TARGETS]
            ),
        }
    )


def day_metadata(day: "DayRuns") -> Metadata:
    rows = [
        (
            one.id,
            one.rule_name,
            one.project_id,
            one.trigger,
            one.status,
            one.targets.succeeded,
            one.targets.not_cancelled,
            "" if one.apply_ms is None else f"{one.apply_ms / 1000:.1f}",
        )
        for one in day.runs[:MOST_RUNS]
    ]
    heads = ("run", "rule", "project", "trigger", "status", "applied", "failed", "seconds")
    return as_metadata(
        {
            "runs": len(day.runs),
            "applied": day.applied,
            "failed": day.failed,
            "dead_letters": day.dead_letters,
            "success_rate": None if day.success_rate is None else float(day.success_rate),
            "table": table(heads, rows),
        }
    )


async def check_prices(
    run_id: int | None, check: str | None, services: Services
) -> "Sequence[ReconciliationReport]":
    from automation_pipeline.pricing.checks import (  # noqa: PLC0415  the steps of a run do not need it
        next_manual_name,
        reconcile_all,
        reconcile_run,
    )

    check_ids(run_id=run_id)
    if run_id is None:
        if check is not None:
            raise InvalidInputError("check names a check of one run: give run_id too, or neither.")
        return await reconcile_all(services.pricing_context)
    if check is None:
        with services.database.reading() as session:
            check = next_manual_name(session, run_id)
    return [await reconcile_run(run_id, services.pricing_context, name=check)]


RUN_ID_TAG = "pricing/run_id"
_ACTOR = "launchpad"

NOT_CONFIGURED = "SHOP_API_BASE_URL is not set: there is no shop whose prices could be changed."


@contextmanager
def counting_moves(services: Services) -> Generator[None]:
    """Count refused changes of state, which mean a bug or two concurrent users."""
    try:
        yield
    except IllegalMoveError as error:
        services.meter.count("rules_illegal_moves_total", machine=error.machine)
        services.metering.flush()
        raise


@dataclass(frozen=True)
class Launch:
    """The config of a Dagster run."""

    run_id: int | None
    rule_id: int | None
    preview_only: bool
    force: bool

    def __post_init__(self) -> None:
        check_ids(run_id=self.run_id, rule_id=self.rule_id)
        if (self.run_id is None) == (self.rule_id is None):
            raise InvalidInputError(
                "Give either run_id, to work on an existing run, or rule_id, to create one."
            )
        if self.force and (self.rule_id is None or self.preview_only):
            raise InvalidInputError("force needs rule_id, and does not combine with preview.")


def work_on(
    launch: Launch, context: dg.OpExecutionContext, services: Services
) -> Coroutine[object, object, RuleRun]:
    """Work on the run, or on a new run of the rule. A retry works on the run that the first attempt
    created."""
    run_id = _created_before(context) if launch.run_id is None else launch.run_id
    if run_id is None:
        rule_id = cast("int", launch.rule_id)
        if launch.preview_only:
            trigger = RuleTrigger.LAUNCHPAD
            return preview_rule(rule_id, services.pricing_context, actor=_ACTOR, trigger=trigger)
        run_id = _create_run(rule_id, context, services, force=launch.force)
    if launch.preview_only:
        return plan_run(run_id, services.pricing_context)
    return work_run(run_id, services.pricing_context, owner_of(context.run))


def _create_run(
    rule_id: int, context: dg.OpExecutionContext, services: Services, *, force: bool
) -> int:
    run_id = request_rule_run(
        rule_id,
        database=services.database,
        clock=services.clock,
        shop=services.storefront.name,
        actor=_ACTOR,
        trigger=RuleTrigger.LAUNCHPAD,
        force=force,
    )
    # This step is the worker of the new run, so its request is already served.
    with services.database.transaction() as session:
        mark_taken(session, request_key(str(run_id), 1), context.run_id)
    context.instance.add_run_tags(context.run_id, {RUN_ID_TAG: str(run_id)})
    return run_id


def _created_before(context: dg.OpExecutionContext) -> int | None:
    """The run that an earlier attempt of the step created, or the Dagster run that this one
    retries: it has copied the tags."""
    run = context.instance.get_run_by_id(context.run_id)
    return id_in(run.tags.get(RUN_ID_TAG)) if run else None


def run_id_of(run: dg.DagsterRun) -> int | None:
    """None before the price run is created."""
    given = config_of(run).get("run_id")
    return id_in(run.tags.get(RUN_ID_TAG) if given is None else given)


def cancel_run_of(run: dg.DagsterRun, services: Services) -> None:
    """Cancel the price run of a terminated Dagster run. Otherwise the sweep would request another
    worker."""
    run_id = run_id_of(run)
    if run_id is None:
        return
    # The run has ended, was only planned, or does not exist.
    with suppress(ConflictError, NotFoundError):
        cancel_run(run_id, database=services.database, clock=services.clock, actor="dagster")


def postpone_run_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """Postpone the price run after its Dagster run failed permanently. The sweep requests another
    worker later."""
    run_id = run_id_of(run)
    if run_id is not None:
        postpone_failed_run(run_id, reason, database=services.database)
