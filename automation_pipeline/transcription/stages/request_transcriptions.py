"""Ask for fiches to be transcribed: the ids of the runs are known at once."""

import uuid
from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunWish, file_requests
from automation_pipeline.transcription.domain.requests import Asked, Requested, batch_key, single_key
from automation_pipeline.transcription.domain.run import Priority
from automation_pipeline.transcription.store.asked import JOB, asked_before, live_runs

DAGSTER_PRIORITY = {Priority.HIGH: "10", Priority.NORMAL: "0", Priority.LOW: "-10"}


def request_transcriptions(
    fiche_ids: Sequence[str], *, priority: Priority, batch: bool, database: Database, clock: Clock
) -> list[Requested]:
    """One outcome a fiche, each fiche once. A `batch` does not ask twice a day for what is under way or complete; a
    fiche that a run works on already is joined, not worked on twice."""
    now, wanted = clock.now(), list(dict.fromkeys(fiche_ids))
    with database.transaction() as session:
        asked = asked_before(session, wanted, now.date()) if batch else dict.fromkeys(wanted, Asked())
        live = live_runs(session, wanted)
        outcomes: list[Requested] = []
        wishes: list[RunWish] = []
        for fiche_id in wanted:
            key = batch_key(fiche_id, now.date(), asked[fiche_id]) if batch else single_key(fiche_id, now)
            if key is None:
                outcomes.append(Requested(fiche_id, live.get(fiche_id), None))
                continue
            # What is live now may be over before Dagster begins: the wish has an id of its own, and joins if it can.
            run_id = str(uuid.uuid4())
            config = {"fiche_id": fiche_id, "priority": priority, "run_id": run_id}
            wishes.append(RunWish(key, JOB, config, _tags(fiche_id, run_id, priority)))
            outcomes.append(Requested(fiche_id, live.get(fiche_id, run_id), key))
        file_requests(session, wishes, now)
    return outcomes


def _tags(fiche_id: str, run_id: str, priority: Priority) -> dict[str, str]:
    """Urgent runs are also started first."""
    return {
        "automation/fiche_id": fiche_id,
        "automation/trace_id": run_id,
        "dagster/priority": DAGSTER_PRIORITY[priority],
    }
