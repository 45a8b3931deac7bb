"""Conditions that must hold for an installation after a run with faults. Each check returns sentences,
or nothing. Conditions that need time to settle are checked repeatedly."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.automation.tables import FicheResultRow, NotificationRow, RunRow
from automation_pipeline.clients.pusher import entries_of
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.monitoring import StepHeartbeatRow
from automation_pipeline.storage.outbox import OutboxRow, event_in
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow
from automation_pipeline_tests.simulator_control import published_events
from automation_pipeline_tests.survival.world import World

UNENDED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
MOST_BYTES = 9000  # PUSHER_MAX_PAYLOAD_BYTES

Events = Counter[tuple[str, str, str]]


def ledger_faults(session: Session, run_id: int, fiche_ids: Sequence[str]) -> Iterator[str]:
    """One row per fiche, none pending, and totals that add up."""
    run = session.get_one(RunRow, run_id)
    rows = session.execute(
        select(FicheResultRow.fiche_id, FicheResultRow.status).where(
            FicheResultRow.run_id == run_id
        )
    ).tuples()
    found = list(rows)
    statuses = Counter(status for _, status in found)
    if run.status not in {"completed", "partial", "failed"} or run.completed_at is None:
        yield f"run {run_id} has not ended: it is {run.status}"
    selected = sorted(fiche_id for fiche_id, _ in found)
    if selected != (sorted(fiche_ids) if run.selected_at else []):
        yield f"run {run_id} has rows for {selected} instead of {sorted(fiche_ids)}"
    if statuses["pending"]:
        yield f"run {run_id} has {statuses['pending']} rows pending"
    result = (run.successful_fiches, run.failed_fiches, run.ignored_fiches)
    counted = tuple(statuses[status] for status in ("successful", "failed", "ignored"))
    if result != counted or run.selected_fiches != sum(result) or run.selected_fiches != len(found):
        yield f"run {run_id} has the totals {run.selected_fiches} = {result}, but its rows are {counted}"


def left_behind(session: Session) -> Iterator[str]:
    """Rows that wait or are claimed although no process works."""
    live = {
        "transcription tasks": select(TranscriptionTaskRow.id).where(
            TranscriptionTaskRow.state.in_(("waiting", "working"))
        ),
        "transcription runs": select(TranscriptionRunRow.id).where(
            TranscriptionRunRow.status == "running"
        ),
        "unfinished audits": select(AuditRow.id).where(AuditRow.status.in_(("pending", "running"))),
        "requests": select(RunRequestRow.request_key).where(RunRequestRow.state == "waiting"),
        "leases": select(LeaseRow.key).where(
            LeaseRow.expires_at > database_now(), LeaseRow.owner != "pause"
        ),
        "unsent events": select(OutboxRow.id).where(OutboxRow.published_at.is_(None)),
        "unsent notifications": select(NotificationRow.id).where(
            NotificationRow.status == "pending"
        ),
        "heartbeats of steps": select(StepHeartbeatRow.step_key),
        "unfinished runs": select(RunRow.id).where(RunRow.completed_at.is_(None)),
    }
    for name, query in live.items():
        if found := session.scalars(query.limit(5)).all():
            yield f"{name} left behind: {', '.join(map(str, found))}"


def dagster_left_behind(instance: DagsterInstance) -> Iterator[str]:
    if unended := instance.get_runs(RunsFilter(statuses=UNENDED, job_name="automation_run")):
        yield f"unfinished Dagster runs: {', '.join(run.run_id for run in unended)}"
    storage = instance.event_log_storage
    for key in storage.get_concurrency_keys():
        if held := storage.get_concurrency_info(key).claimed_slots:
            yield f"slots of Dagster's pool {key} still held: {len(held)}"


def redis_left_behind(world: World) -> Iterator[str]:
    if world.redis is None:
        return
    client = world.redis.client()
    seconds, micros = client.time()
    for key in client.scan_iter():
        expires_at = client.hget(key, "expires_at") if client.type(key) == "hash" else None
        if expires_at and int(expires_at) > seconds * 1_000_000 + micros:
            yield f"lease left behind in Redis: {key}"


def expected_events(session: Session) -> Events:
    """The events that browsers should have received, by the outbox."""
    result: Events = Counter()
    for row in session.scalars(select(OutboxRow).where(OutboxRow.published_at.is_not(None))):
        entries = entries_of(event_in(row), private=True, max_bytes=MOST_BYTES)
        result.update((entry.channel, entry.name, entry.data) for entry in entries)  # pyright: ignore  never an error here
    return result


def received_events(world: World) -> Events:
    received = published_events(world.provider)
    return Counter(
        (channel, one["name"], one["data"]) for one in received for channel in one["channels"]
    )


def messages(world: World) -> Counter[str]:
    """Received webhooks by the id of their delivery."""
    return Counter(
        {key.lower(): value for key, value in call.headers.items()}["x-automation-delivery"]
        for call in world.webhooks.calls
    )


def unsent(world: World) -> Iterator[str]:
    """Events and webhooks that are marked as sent but never arrived."""
    with world.database.reading() as session:
        expected = expected_events(session)
        sent = session.scalar(
            select(func.count())
            .select_from(NotificationRow)
            .where(NotificationRow.status == "sent")
        )
    for channel, name, data in expected - received_events(world):
        yield f"an event is marked as sent but never arrived: {name} on {channel}: {data[:200]}"
    if len(messages(world)) < (sent or 0):
        yield f"{sent} webhooks are marked as sent, but {len(messages(world))} were received"


def sent_again(world: World) -> int:
    """The number of repeated events and webhooks."""
    with world.database.reading() as session:
        expected = expected_events(session)
    events = (received_events(world) - expected).total()
    return events + sum(times - 1 for times in messages(world).values())


def everything_left_behind(world: World, instance: Callable[[], DagsterInstance]) -> list[str]:
    with world.database.reading() as session:
        found = list(left_behind(session))
    return [*found, *dagster_left_behind(instance()), *redis_left_behind(world)]
