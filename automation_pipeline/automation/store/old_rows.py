"""What of ended runs may go once it is old. Their results stay: runs, outcomes, phases, what became of due times."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Text, cast, exists

from automation_pipeline.automation.domain.run import RUN_MACHINE
from automation_pipeline.automation.tables import LogRow, NotificationRow, RunRow
from automation_pipeline.core.delivery import DeliveryStatus
from automation_pipeline.storage.retention import Kind
from automation_pipeline.storage.transitions import TransitionRow


def _old_logs(before: datetime) -> Sequence[ColumnElement[bool]]:
    return LogRow.timestamp <= before, exists().where(RunRow.id == LogRow.run_id, RunRow.completed_at <= before)


def _old_notifications(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Of a run that ended so long ago nobody tells again; what waits to be sent stays."""
    has_ended = exists().where(RunRow.id == NotificationRow.run_id, RunRow.completed_at <= before)
    is_told = NotificationRow.status != DeliveryStatus.PENDING
    return NotificationRow.created_at <= before, is_told, has_ended


def _old_moves(before: datetime) -> Sequence[ColumnElement[bool]]:
    works = exists().where(cast(RunRow.id, Text) == TransitionRow.entity_id, RunRow.completed_at.is_(None))
    return TransitionRow.machine == RUN_MACHINE.name, TransitionRow.at <= before, ~works


LOGS = Kind("automation_logs", LogRow, _old_logs)
NOTIFICATIONS = Kind("automation_notifications", NotificationRow, _old_notifications)
MOVES = Kind("state_transitions, automation", TransitionRow, _old_moves)
