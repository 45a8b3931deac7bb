"""Runs of pricing rules as Dagster knows them: which one it works on, and what stops when somebody terminates it."""

from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.orchestration.config_ids import check_ids, id_in
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.pricing.domain.keys import request_key
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTrigger
from automation_pipeline.pricing.stages.cancel_run import cancel_run
from automation_pipeline.pricing.stages.plan_run import plan_run
from automation_pipeline.pricing.stages.preview_rule import preview_rule
from automation_pipeline.pricing.stages.put_off_run import put_off_run
from automation_pipeline.pricing.stages.request_rule_run import request_rule_run
from automation_pipeline.pricing.stages.work_run import work_run
from automation_pipeline.pricing.store.new_runs import JOB
from automation_pipeline.storage.run_requests import mark_taken

OP = "work_rule_run"
RUN_ID_TAG = "pricing/run_id"
_ACTOR = "launchpad"
_TERMINATED_BY = "dagster"

NOT_CONFIGURED = "SHOP_API_BASE_URL is not set: there is no shop whose prices could be changed."


def has_shop(services: Services) -> bool:
    return services.settings.shop_api_base_url is not None


@contextmanager
def counting_moves(services: Services) -> Generator[None]:
    """A change of state that is not allowed is a bug, or two who act at once: it is refused, and counted."""
    try:
        yield
    except IllegalMoveError as error:
        services.meter.count("rules_illegal_moves_total", machine=error.machine)
        services.metering.flush()
        raise


@dataclass(frozen=True)
class Launch:
    """What the config of a run says."""

    run_id: int | None
    rule_id: int | None
    preview_only: bool
    force: bool

    def __post_init__(self) -> None:
        check_ids(run_id=self.run_id, rule_id=self.rule_id)
        if (self.run_id is None) == (self.rule_id is None):
            raise InvalidInputError(
                "Give run_id, to work on a run that is there, or rule_id, to make one: one of them."
            )
        if self.force and (self.rule_id is None or self.preview_only):
            raise InvalidInputError(
                "force is for a run that is made and applied: give rule_id with it, and no preview."
            )


def work_on(launch: Launch, context: dg.OpExecutionContext, our: Services) -> Coroutine[object, object, RuleRun]:
    """Work on the run, or on the one that is made of the rule. A retry works on what was made before."""
    front, database, clock = our.storefront, our.database, our.clock
    run_id = _made_before(context) if launch.run_id is None else launch.run_id
    if run_id is None and launch.preview_only:
        return preview_rule(
            cast("int", launch.rule_id),
            front=front,
            database=database,
            clock=clock,
            actor=_ACTOR,
            trigger=RuleTrigger.LAUNCHPAD,
        )
    run_id = _make(launch, context, our) if run_id is None else run_id
    if launch.preview_only:
        return plan_run(run_id, front=front, database=database, clock=clock)
    owner = f"{worker_name()}/{context.run_id}"
    return work_run(run_id, front=front, database=database, clock=clock, owner=owner)


def _make(launch: Launch, context: dg.OpExecutionContext, our: Services) -> int:
    run_id = request_rule_run(
        cast("int", launch.rule_id),
        database=our.database,
        clock=our.clock,
        shop=our.storefront.name,
        actor=_ACTOR,
        trigger=RuleTrigger.LAUNCHPAD,
        force=launch.force,
    )
    with our.database.transaction() as session:  # the worker that it asks for is here already
        mark_taken(session, request_key(str(run_id), 1), context.run_id)
    context.instance.add_run_tags(context.run_id, {RUN_ID_TAG: str(run_id)})
    return run_id


def _made_before(context: dg.OpExecutionContext) -> int | None:
    """By an earlier try of the step, or by the Dagster run that this one is a retry of: it has its tags."""
    run = context.instance.get_run_by_id(context.run_id)
    return id_in(run.tags.get(RUN_ID_TAG)) if run else None


def run_id_of(run: dg.DagsterRun) -> int | None:
    """None for a run of another job, and for one that has not made its run yet."""
    if run.job_name != JOB:
        return None
    ops = cast("Mapping[str, Any]", run.run_config).get("ops", {})
    given = ops.get(OP, {}).get("config", {}).get("run_id")
    return id_in(run.tags.get(RUN_ID_TAG) if given is None else given)


def cancel_run_of(run: dg.DagsterRun, services: Services) -> None:
    """Who terminates it in Dagster wants it to stop: without this the sweep would ask for another worker."""
    run_id = run_id_of(run)
    if run_id is not None:
        with suppress(ConflictError, NotFoundError):  # it is over, was only looked at, or never was there
            cancel_run(run_id, database=services.database, clock=services.clock, actor=_TERMINATED_BY)


def put_off_run_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """After a Dagster run that failed for good; the sweep goes on with it later."""
    run_id = run_id_of(run)
    if run_id is not None:
        put_off_run(run_id, reason, database=services.database)
