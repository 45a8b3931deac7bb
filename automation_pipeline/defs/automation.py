"""Automation runs: the job, and the sensors that start, watch and close its runs."""

from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import Field

from automation_pipeline.automation.models.runs import AUTOMATION_JOB, RunAttempt
from automation_pipeline.orchestration.automation_runs import (
    STATUS_TAG,
    at_work,
    batch_key,
    opening_tags,
    parse_launch,
)
from automation_pipeline.orchestration.job_registry import (
    close_failed,
    job_definitions,
)
from automation_pipeline.orchestration.ops import (
    SelectionConfig,
    ServicesResource,
    StrictConfig,
    every,
    verdicts,
    words_of,
)


@dg.failure_hook(required_resource_keys={"services"})
def close_run(context: dg.HookContext) -> None:
    from automation_pipeline.automation.queries.runs import unended_run_of_dagster
    from automation_pipeline.automation.run_endings import finalise_run

    our = context.resources.services.get()
    with our.database.reading() as session:
        ticket = unended_run_of_dagster(session, context.run_id, None)
    if ticket is not None:
        finalise_run(
            ticket.run_id,
            database=our.database,
            clock=our.clock,
            attempt=ticket.attempt,
            breakdown=words_of(context.op_exception),
        )


class AutomationRunConfig(StrictConfig):
    """What to run. Everything else is configured on the schedule."""

    schedule_id: int = Field(
        description="The schedule to run: `automation schedules list` shows them."
    )
    override_fiche_selection: SelectionConfig | None = Field(
        default=None,
        description='Select these fiches instead: {"mode": "manual", "ficheIds": ["1900417"]}.',
    )
    due_at: str | None = Field(
        default=None, description="The occurrence that is run, as a quoted ISO instant."
    )
    run_id: int | None = Field(
        default=None, description="Attach to this run, filed earlier by `run-now`."
    )

    def said(self) -> dict[str, object]:
        override = self.override_fiche_selection
        return {**self.model_dump(), "override_fiche_selection": override and override.said()}


@dg.op
def open_run(
    context: dg.OpExecutionContext, config: AutomationRunConfig, services: ServicesResource
) -> RunAttempt:
    """Begin an attempt at the run and fence off earlier ones."""
    from automation_pipeline.automation import runs
    from automation_pipeline.orchestration.heartbeat import worker_name

    our = services.get()
    with verdicts():
        launch = parse_launch(
            config.said(), context.run, worker_name(), our.settings.automation_lost_after_seconds
        )
        ticket = runs.open_run(launch, database=our.database, clock=our.clock)
    context.instance.add_run_tags(
        context.run_id, opening_tags(ticket, config.schedule_id, context.run.tags)
    )
    return ticket


@dg.op(out=dg.DynamicOut(tuple))
def select_fiches(
    context: dg.OpExecutionContext, ticket: RunAttempt, services: ServicesResource
) -> Iterator[dg.DynamicOutput]:
    """Resolve the selection, write one pending row a fiche; hand on the batches that have work
    left."""
    from automation_pipeline.automation import selection as selecting
    from automation_pipeline.orchestration.batch_context import crm_of_run, selection_options

    our, batches = services.get(), ()
    with at_work(context, ticket, our):
        ground = {
            "database": our.database,
            "source": crm_of_run(our, ticket.run_id),
            "clock": our.clock,
        }
        options = selection_options(our)
        selected = our.run(
            selecting.select_fiches(
                ticket, **ground, semaphore=our.sales_list_semaphore, options=options
            )
        )
        batches = selected.batches
    yield from _batches(ticket, batches)


@dg.op
def fetch_batch(context: dg.OpExecutionContext, work: tuple, services: ServicesResource) -> None:
    """Fetch the details of a batch's fiches, many at once, and apply the filters; rows move while
    it runs."""
    from automation_pipeline.automation import fetching
    from automation_pipeline.orchestration.batch_context import crm_of_run, fetch_options

    our, (ticket, batch) = services.get(), work
    with at_work(context, ticket, our):
        ground = {
            "database": our.database,
            "source": crm_of_run(our, ticket.run_id),
            "clock": our.clock,
        }
        ended = our.run(fetching.fetch_batch(ticket, batch, **ground, options=fetch_options(our)))
        context.add_output_metadata({str(status): count for status, count in ended.items()})


@dg.op(ins={"fetched": dg.In(dg.Nothing)}, out=dg.DynamicOut(tuple))
def settle_fetch(
    context: dg.OpExecutionContext, ticket: RunAttempt, services: ServicesResource
) -> Iterator[dg.DynamicOutput]:
    """End who needs nothing more; hand on the batches that are transcribed and audited."""
    from automation_pipeline.automation import fetching as settling

    our, batches = services.get(), ()
    with at_work(context, ticket, our):
        batches = settling.settle_fetch(ticket, database=our.database, clock=our.clock)
    yield from _batches(ticket, batches)


@dg.op
def transcribe_batch(
    context: dg.OpExecutionContext, work: tuple, services: ServicesResource
) -> None:
    """Transcribe the calls of a batch's fiches. A fiche whose transcription fails is a row, not a
    failure of the step."""
    from automation_pipeline.automation import transcribing
    from automation_pipeline.orchestration.batch_context import batch_context
    from automation_pipeline.orchestration.heartbeat import worker_name

    our, (ticket, batch) = services.get(), work
    with at_work(context, ticket, our):
        work_context = batch_context(our, f"{worker_name()}/{context.run_id}", ticket.run_id)
        ended = our.run(transcribing.transcribe_batch(ticket, batch, context=work_context))
        context.add_output_metadata({str(status): count for status, count in ended.items()})


@dg.op(
    ins={"transcribed": dg.In(dg.Nothing)},
    # Before the transcription of later batches, where one process executes all steps.
    tags={"dagster/priority": "1"},
)
def audit_batch(context: dg.OpExecutionContext, work: tuple, services: ServicesResource) -> None:
    """Audit those of a batch's fiches that are transcribed, or need no transcription."""
    from automation_pipeline.automation import auditing
    from automation_pipeline.orchestration.batch_context import batch_context
    from automation_pipeline.orchestration.heartbeat import worker_name

    our, (ticket, batch) = services.get(), work
    with at_work(context, ticket, our):
        work_context = batch_context(our, f"{worker_name()}/{context.run_id}", ticket.run_id)
        ended = our.run(auditing.audit_batch(ticket, batch, context=work_context))
        context.add_output_metadata({str(status): count for status, count in ended.items()})


def _batches(ticket: RunAttempt, numbers: Sequence[int]) -> Iterator[dg.DynamicOutput]:
    for number in numbers:
        yield dg.DynamicOutput((ticket, number), mapping_key=batch_key(number))


@dg.op(ins={"audited": dg.In(dg.Nothing)})
def finalise_run(
    context: dg.OpExecutionContext, ticket: RunAttempt, services: ServicesResource
) -> None:
    """Derive the verdict from the rows, after checking that none is missing."""
    from automation_pipeline.automation import run_endings as finalising
    from automation_pipeline.orchestration.run_summary import (
        asset_events,
        assets_of_run,
        run_summary,
    )

    our = services.get()
    with verdicts():
        run = finalising.finalise_run(
            ticket.run_id, database=our.database, clock=our.clock, attempt=ticket.attempt
        )
    context.instance.add_run_tags(context.run_id, {STATUS_TAG: str(run.status)})
    for event in asset_events(our, run, assets_of_run(our, run)):
        context.log_event(event)  # pyright: ignore[reportArgumentType]  it takes evaluations too
    context.add_output_metadata(run_summary(our, run))


@dg.job(
    hooks={close_run},
    tags={
        # From failure would drop the batches that had not started (DAGSTER.md 3.4); every step is
        # repeatable.
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "18000",
    },
    description="Runs an automation schedule once: selects fiches, fetches their details, transcribes and "
    "audits their calls, and records one outcome per fiche. Green: the outcome is recorded, also "
    "when the run failed or was cancelled. Red: the run could not be opened or closed.",
)
def automation_run() -> None:
    ticket = open_run()
    fetched = select_fiches(ticket).map(fetch_batch).collect()
    batches = settle_fetch(ticket=ticket, fetched=fetched)
    audited = batches.map(lambda work: audit_batch(work=work, transcribed=transcribe_batch(work)))
    finalise_run(ticket=ticket, audited=audited.collect())


@dg.run_failure_sensor(
    monitored_jobs=job_definitions(),
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Requests another attempt for a Dagster run that was lost, and ends the work of one that failed "
    "for good.",
)
def run_failures(
    context: dg.RunFailureSensorContext, services: ServicesResource
) -> dg.SkipReason | None:
    from automation_pipeline.orchestration.recovery import ending_of
    from automation_pipeline.orchestration.watchdog import launch_again, look_after_run_of

    run = context.dagster_run
    if run.job_name == AUTOMATION_JOB:
        done = look_after_run_of(run, context.instance, services.get())
        return None if done else dg.SkipReason(f"No automation run waits for {run.run_id}.")
    record = context.instance.get_run_record_by_id(run.run_id)
    if record is None:
        return dg.SkipReason(f"Dagster has deleted {run.run_id}.")
    ending = ending_of(record, context.instance)
    if launch_again(run, ending, services.get()):
        return dg.SkipReason(f"{run.run_id} was lost: another launch is requested.")
    close_failed(run, ending.reason, services.get())
    return None


@dg.sensor(
    job=automation_run,
    minimum_interval_seconds=every(10),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Finds runs whose process was lost, and requests their next attempt or closes them.",
)
def reconcile_stale_runs(
    context: dg.SensorEvaluationContext, services: ServicesResource
) -> dg.SkipReason:
    from automation_pipeline.orchestration.watchdog import look_after_all

    looked_at, done = look_after_all(context.instance, services.get())
    return dg.SkipReason("; ".join(done) or f"{looked_at} runs looked at, none is stale.")


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(15),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Decides every due time of the automation schedules once: it files a run, or records why it does not.",
)
def due_schedules(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.automation.schedules import start_due_runs
    from automation_pipeline.bootstrap import due_rules

    our = services.get()
    return dg.SkipReason(
        str(start_due_runs(due_rules(our.settings), database=our.database, clock=our.clock))
    )
