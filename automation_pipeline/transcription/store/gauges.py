"""How many recordings wait for their transcript: numbers for graphs."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.transcription.domain.run import TaskState
from automation_pipeline.transcription.tables import TranscriptionTaskRow


def waiting_tasks(session: Session) -> int:
    query = select(func.count()).where(TranscriptionTaskRow.state == TaskState.WAITING)
    return session.scalar(query) or 0
