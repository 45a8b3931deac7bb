"""What became of wishes for transcripts: the runs that work on them, or the reasons for which nothing will."""

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from sqlalchemy.orm import Session

from automation_pipeline.storage.run_requests import FiledRequest, refusals, taken
from automation_pipeline.transcription.domain.requests import Requested
from automation_pipeline.transcription.domain.run import Standing
from automation_pipeline.transcription.store.asked import live_runs
from automation_pipeline.transcription.store.runs import last_runs_of, standings


def followed(session: Session, requested: Sequence[Requested], asked_at: datetime) -> dict[str, Standing | str]:
    """By fiche, of those that have begun or never will: the run promised, or, once Dagster has taken the wish, the one
    that it joined; without a run, why it was refused."""
    keys = [one.key for one in requested if one.key]
    refused, begun = refusals(session, keys), taken(session, keys)
    promised = {one.fiche_id: one for one in standings(session, [cast("str", one.run_id) for one in requested])}
    joining = [one.fiche_id for one in requested if one.key in begun and one.fiche_id not in promised]
    joined = last_runs_of(session, joining, asked_at)
    reasons = {one.fiche_id: refused[one.key] for one in requested if one.key in refused}
    return {**reasons, **joined, **promised}


def as_requested(session: Session, filed: Sequence[FiledRequest]) -> list[Requested]:
    """As `request_transcriptions` told it: a fiche that a run works on is joined."""
    fiches = {one.key: one.tags["automation/fiche_id"] for one in filed}
    live = live_runs(session, list(fiches.values()))
    return [
        Requested(fiches[one.key], live.get(fiches[one.key], cast("str", one.config["run_id"])), one.key)
        for one in filed
    ]
