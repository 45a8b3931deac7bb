"""What of enrichment may go once it is old. Companies, their documents and requests stay."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, exists
from sqlalchemy.orm import aliased

from automation_pipeline.enrichment.domain.states import ENRICHMENT
from automation_pipeline.enrichment.domain.vocabulary import JobState
from automation_pipeline.enrichment.tables import JobRow
from automation_pipeline.storage.retention import Kind
from automation_pipeline.storage.transitions import TransitionRow


def _old_jobs(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Not the newest of its company, which is shown with the company."""
    newer = aliased(JobRow)
    has_newer = exists().where(newer.company_siren == JobRow.company_siren, newer.id > JobRow.id)
    return JobRow.state == JobState.DONE, JobRow.finished_at <= before, has_newer


def _old_moves(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Nothing is decided by them: a company's row says how it stands."""
    return TransitionRow.machine == ENRICHMENT.name, TransitionRow.at <= before


JOBS = Kind("enrichment_jobs", JobRow, _old_jobs)
MOVES = Kind("state_transitions, enrichment", TransitionRow, _old_moves)
