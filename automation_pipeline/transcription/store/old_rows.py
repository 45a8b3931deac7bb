"""Places in the queue that may go once they are old. Transcripts stay, and failures: they say why one is missing."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, exists

from automation_pipeline.storage.retention import Kind
from automation_pipeline.transcription.domain.run import RunStatus, TaskState
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

Run, Task = TranscriptionRunRow, TranscriptionTaskRow


def _old_tasks(before: datetime) -> Sequence[ColumnElement[bool]]:
    is_over = Task.state.in_((TaskState.DONE, TaskState.CACHED)), Task.finished_at <= before
    return *is_over, ~exists().where(Run.id == Task.run_id, Run.status == RunStatus.RUNNING)


TASKS = Kind("transcription_tasks", Task, _old_tasks)
