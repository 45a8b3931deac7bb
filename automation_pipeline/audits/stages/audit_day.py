"""Audit what the fiches sold on a day lack, by every configuration that runs automatically."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from automation_pipeline.audits.domain.audit import Standing, Wish
from automation_pipeline.audits.domain.day import DayAudits, cause
from automation_pipeline.audits.domain.requests import day_id
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.stages.audit_fiche import Listen, audit_fiche
from automation_pipeline.audits.store.configs import automatic_configs
from automation_pipeline.audits.store.days import audits_of, audits_to_do
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, sentence_of
from automation_pipeline.core.pool import work_through
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.storage.database import Database

TRIGGER = "asset"


@dataclass(frozen=True, kw_only=True)
class DayWork:
    """`width` audits at a time. One `attempt` makes each audit once, however often it is repeated; the next attempt
    tries again what failed in it."""

    day: date
    attempt: str
    width: int
    dagster_run_id: str | None = None


@dataclass(frozen=True)
class _NotDone:
    """An audit that did not get to its end."""

    fiche_id: str
    error: AutomationError


async def audit_day(
    work: DayWork, *, database: Database, source: FicheSource, listen: Listen, judge: Judge, clock: Clock
) -> DayAudits:
    """How the day stands afterwards, with the causes of this attempt's failures. One audit's error takes nothing from
    the others; when not one gets to its end, the first error is raised."""
    ended: list[Standing | _NotDone] = []

    async def audit(wish: Wish) -> Standing | _NotDone:
        try:
            return await audit_fiche(wish, database=database, source=source, listen=listen, judge=judge, clock=clock)
        except AutomationError as error:
            return _NotDone(wish.fiche_id, error)

    await work_through(_wishes(work, database), audit, ended.extend, width=work.width)
    undone = [one for one in ended if isinstance(one, _NotDone)]
    if undone and len(undone) == len(ended):
        raise undone[0].error
    with database.reading() as session:
        day = audits_of(session, work.day)
    causes = Counter(cause(sentence_of(one.error), one.fiche_id) for one in undone)
    return replace(day, failures=Counter(day.failures) + causes)


def _wishes(work: DayWork, database: Database) -> Sequence[Wish]:
    with database.reading() as session:
        config_ids = [stored.id for stored in automatic_configs(session)]
        lacking = audits_to_do(session, work.day, config_ids)
    return [
        Wish(
            tracking_id=day_id(work.day.isoformat(), fiche_id, config_id, work.attempt),
            fiche_id=fiche_id,
            audit_config_id=config_id,
            trigger_source=TRIGGER,
            dagster_run_id=work.dagster_run_id,
        )
        for fiche_id, config_id in lacking
    ]
