"""Answers about schedules of organisations that several routes give."""

from starlette.responses import Response

from automation_pipeline.api.envelope import answer
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule


def shown_schedule(schedule: OrgSchedule, *, status: int = 200) -> Response:
    """The ETag is the number of its version."""
    return answer(as_document(schedule), status=status, headers={"ETag": f'"{schedule.version}"'})
