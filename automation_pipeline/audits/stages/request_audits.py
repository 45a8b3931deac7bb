"""Ask for fiches to be audited: the ids of the audits are known at once, Dagster begins them."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from automation_pipeline.audits.domain.audit_wishes import COMPLAINT
from automation_pipeline.audits.domain.requests import Requested, batch_item_id, single_id
from automation_pipeline.audits.store.batches import add_batch
from automation_pipeline.audits.store.configs import get_config
from automation_pipeline.audits.store.linkage import check_linkage
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "audit_fiche"


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How the audits are asked for. A `batch` is followed as one. `schedule_id` and `run_id` are the automation's."""

    audit_config_id: int
    use_rlm: bool = False
    trigger_source: str = "api"
    user_id: str | None = None
    batch: bool = False
    schedule_id: int | None = None
    run_id: int | None = None

    @property
    def linkage(self) -> dict[str, int | None]:
        return {"automation_schedule_id": self.schedule_id, "automation_run_id": self.run_id}


@dataclass(frozen=True)
class Filed:
    audits: Sequence[Requested]
    batch_id: str | None


def request_audits(fiche_ids: Sequence[str], asking: Asking, *, database: Database, clock: Clock) -> Filed:
    """Each fiche once. NotFoundError when there is no such configuration; one that is not active may be asked for.
    InvalidInputError when there is no such automation."""
    now, config_id = clock.now(), asking.audit_config_id
    batch_id = str(uuid.uuid4()) if asking.batch else None
    audits = [
        Requested(
            fiche_id, batch_item_id(batch_id, fiche_id, config_id) if batch_id else single_id(fiche_id, config_id, now)
        )
        for fiche_id in dict.fromkeys(fiche_ids)
    ]
    with database.transaction() as session:
        get_config(session, config_id)
        check_linkage(session, asking.linkage, COMPLAINT)
        if batch_id:
            add_batch(session, batch_id, config_id, [(one.fiche_id, one.tracking_id) for one in audits], now)
        file_requests(session, [_wish(one, asking) for one in audits], now)
    return Filed(audits, batch_id)


def _wish(one: Requested, asking: Asking) -> RunWish:
    config: dict[str, object] = {
        "tracking_id": one.tracking_id,
        "fiche_id": one.fiche_id,
        "audit_config_id": asking.audit_config_id,
        "use_rlm": asking.use_rlm,
        "trigger_source": "batch" if asking.batch else asking.trigger_source,
    }
    optional = {"user_id": asking.user_id, **asking.linkage}
    config.update((name, value) for name, value in optional.items() if value is not None)
    tags = {
        "automation/fiche_id": one.fiche_id,
        "automation/audit_config_id": str(asking.audit_config_id),
        "automation/trace_id": one.tracking_id,
        # One that somebody waits for goes before those of a batch.
        "dagster/priority": "0" if asking.batch else "10",
    }
    return RunWish(one.tracking_id, JOB, config, tags)
