"""What somebody asks for who wants a job done: whether it is one, and what is stored of it."""

from collections.abc import Collection, Iterator, Mapping

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse
from automation_pipeline.org_jobs.domain.job_types import checked_payload, job_type
from automation_pipeline.org_jobs.domain.org_job import JobWish
from automation_pipeline.org_jobs.domain.schedule_rules import server_faults

INVALID_JOB = "Invalid job data"


def read_wish(given: Mapping[str, object], *, call_origins: Collection[str] = ()) -> JobWish:
    """With the type's own name and all that its payload holds. InvalidInputError names every field at fault."""
    wish = parse(JobWish, given, INVALID_JOB)
    try:
        type_ = job_type(wish.type)
    except InvalidInputError as error:
        raise InvalidInputError(INVALID_JOB, tuple(("type", why) for _, why in error.fields)) from None
    faults = [*server_faults(wish.server_instance_id, type_.performer), *_payload_faults(wish, call_origins)]
    if faults:
        raise InvalidInputError(INVALID_JOB, tuple(faults))
    payload = checked_payload(type_, wish.payload, call_origins=call_origins)
    return wish.model_copy(update={"type": type_.name, "payload": payload})


def _payload_faults(wish: JobWish, call_origins: Collection[str]) -> Iterator[tuple[str, str]]:
    try:
        checked_payload(job_type(wish.type), wish.payload, call_origins=call_origins)
    except InvalidInputError as error:
        yield from error.fields
