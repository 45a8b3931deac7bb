"""Automation runs: the job, and the sensors that start and watch its runs."""

from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import Field

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.orchestration.automation_runs import (
    STATUS_TAG,
    batch_context,
    batch_key,
    crm_of_run,
    fetch_options,
    opening_tags,
    parse_launch,
    selection_options,
    step_of_attempt,
)
from automation_pipeline.orchestration.ops import (
    SelectionConfig,
    ServicesResource,
    StrictConfig,
    dagster_errors,
    error_message_of,
    every,
    job_tags,
    owner_of,
    worker_name,
)


@dg.failure_hook(required_resource_keys={"services"})
def close_run(context: dg.HookContext) -> None:
    from automation_pipeline.automation.queries.runs import unended_run_of_dagster
    from automation_pipeline.automation.runs import finalise_run

    system = context.resources.services.get()
    with system.database.reading() as session:
        ticket = unended_run_of_dagster(session, context.run_id, None)
    if ticket is not None:
        finalise_run(
            ticket.run_id,
            database=system.database,
            clock=system.clock,
            attempt=ticket.attempt,
            breakdown=error_message_of(context.op_exception),
        )


class AutomationRunConfig(StrictConfig):
    """Which schedule to run. All other options are configured on the schedule."""

    schedule_id: int = Field(
        description="The schedule to run: `automation schedules list` shows them."
    )
    override_fiche_selection: SelectionConfig | None = Field(
        default=None,
        description='Select these fiches instead: {"mode": "manual", "ficheIds": ["1900417"]}.',
    )
    due_at: str | None = Field(
        default=None, description="The due time of the run, as a quoted ISO instant."
    )
    run_id: int | None = Field(
        default=None, description="Work on this existing run, which `run-now` filed."
    )

    def given(self) -> dict[str, object]:
        override = self.override_fiche_selection
        return {**self.model_dump(), "override_fiche_selection": override and override.given()}


@dg.op
def open_run(
    context: dg.OpExecutionContext, config: AutomationRunConfig, services: ServicesResource
) -> RunAttempt:
    """Start an attempt at the run and fence off earlier attempts."""
    from automation_pipeline.automation import runs

    system = services.get()
    with dagster_errors():
        launch = parse_launch(
            config.given(),
            context.run,
            worker_name(),
            system.settings.automation_lost_after_seconds,
        )
        ticket = runs.open_run(launch, database=system.database, clock=system.clock)
    context.instance.add_run_tags(
        context.run_id, opening_tags(ticket, config.schedule_id, context.run.tags)
    )
    return ticket


@dg.op(out=dg.DynamicOut(tuple))
def select_fiches(
    context: dg.OpExecutionContext, ticket: RunAttempt, services: ServicesResource
) -> Iterator[dg.DynamicOutput]:
    """Resolve the selection, write one pending row per fiche, and return the batches with pending
    work."""
    from automation_pipeline.automation import selection as selecting

    system, batches = services.get(), ()
    with step_of_attempt(context, ticket, system):
        common = {
            "database": system.database,
            "source": crm_of_run(system, ticket.run_id),
            "clock": system.clock,
        }
        options = selection_options(system)
        batches = system.run(
            selecting.select_fiches(
                ticket, **common, semaphore=system.sales_list_semaphore, options=options
            )
        )
    yield from _batches(ticket, batches)


@dg.op
def fetch_batch(context: dg.OpExecutionContext, work: tuple, services: ServicesResource) -> None:
    """Fetch the details of a batch's fiches concurrently and apply the filters; the rows change
    during the step."""
    from automation_pipeline.automation import fetching

    system, (ticket, batch) = services.get(), work
    with step_of_attempt(context, ticket, system):
        common = {
            "database": system.database,
            "source": crm_of_run(system, ticket.run_id),
            "clock": system.clock,
        }
        ended = system.run(
            fetching.fetch_batch(ticket, batch, **common, options=fetch_options(system))
        )
        context.add_output_metadata({str(status): count for status, count in ended.items()})


@dg.op(ins={"fetched": dg.In(dg.Nothing)}, out=dg.DynamicOut(tuple))
def settle_fetch(
    context: dg.OpExecutionContext, ticket: RunAttempt, services: ServicesResource
) -> Iterator[dg.DynamicOutput]:
    """End the fiches that need no more work, and return the batches to transcribe and audit."""
    from automation_pipeline.automation import fetching as settling

    system, batches = services.get(), ()
    with step_of_attempt(context, ticket, system):
        batches = settling.settle_fetch(ticket, database=system.database, clock=system.clock)
    yield from _batches(ticket, batches)


@dg.op
def transcribe_batch(
    context: dg.OpExecutionContext, work: tuple, services: ServicesResource
) -> None:
    """Transcribe the calls of a batch's fiches. A failed transcription is an outcome of the fiche,
    not a failure of the step."""
    from automation_pipeline.automation import transcribing

    system, (ticket, batch) = services.get(), work
    with step_of_attempt(context, ticket, system):
        work_context = batch_context(system, owner_of(context.run), ticket.run_id)
        ended = system.run(transcribing.transcribe_batch(ticket, batch, context=work_context))
        context.add_output_metadata({str(status): count for status, count in ended.items()})


@dg.op(
    ins={"transcribed": dg.In(dg.Nothing)},
    # If one process executes all steps, audit before it transcribes later batches.
    tags={"dagster/priority": "1"},
)
def audit_batch(context: dg.OpExecutionContext, work: tuple, services: ServicesResource) -> None:
    """Audit the fiches of a batch that are transcribed, or need no transcription."""
    from automation_pipeline.automation import auditing

    system, (ticket, batch) = services.get(), work
    with step_of_attempt(context, ticket, system):
        work_context = batch_context(system, owner_of(context.run), ticket.run_id)
        ended = system.run(auditing.audit_batch(ticket, batch, context=work_context))
        context.add_output_metadata({str(status): count for status, count in ended.items()})


def _batches(ticket: RunAttempt, numbers: Sequence[int]) -> Iterator[dg.DynamicOutput]:
    for number in numbers:
        yield dg.DynamicOutput((ticket, number), mapping_key=batch_key(number))


@dg.op(ins={"audited": dg.In(dg.Nothing)})
def finalise_run(
    context: dg.OpExecutionContext, ticket: RunAttempt, services: ServicesResource
) -> None:
    """Derive the status of the run from its rows, after checking that no row is missing."""
    from automation_pipeline.automation import runs as finalising
    from automation_pipeline.orchestration.run_summary import (
        asset_events,
        assets_of_run,
        run_summary,
    )

    system = services.get()
    with dagster_errors():
        run = finalising.finalise_run(
            ticket.run_id, database=system.database, clock=system.clock, attempt=ticket.attempt
        )
    context.instance.add_run_tags(context.run_id, {STATUS_TAG: str(run.status)})
    for event in asset_events(system, run, assets_of_run(system, run)):
        context.log_event(event)  # pyright: ignore[reportArgumentType]  it accepts evaluations too
    summary = run_summary(system, run)
    context.add_output_metadata(summary)
    context.log.info(
        f"Run {run.id} ended {run.status}: {summary['conservation'].value}. "
        f"`automation runs show {run.id}` has the details."
    )


@dg.job(
    hooks={close_run},
    # A retry from failure would drop the batches that had not started; every
    # step is repeatable.
    tags=job_tags(),
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


@dg.sensor(
    job=automation_run,
    minimum_interval_seconds=every(10),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Finds runs whose process was lost, and requests their next attempt or closes them.",
)
def reconcile_stale_runs(
    context: dg.SensorEvaluationContext, services: ServicesResource
) -> dg.SkipReason:
    from automation_pipeline.orchestration.watchdog import check_all_runs

    looked_at, done = check_all_runs(context.instance, services.get())
    return dg.SkipReason("; ".join(done) or f"Checked {looked_at} runs, none is stale.")


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(15),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Decides each due time of the automation schedules once: files a run, or records why it does not run.",
)
def due_schedules(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.automation.schedules import start_due_runs
    from automation_pipeline.bootstrap import due_rules

    system = services.get()
    return dg.SkipReason(
        str(
            start_due_runs(due_rules(system.settings), database=system.database, clock=system.clock)
        )
    )
