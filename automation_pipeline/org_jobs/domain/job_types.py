"""All types of jobs by their names. The payloads of each are in the modules beside it."""

from collections.abc import Mapping
from types import MappingProxyType

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.job_type import JobType

JOB_TYPES: Mapping[str, JobType] = MappingProxyType({})


def job_type(name: str) -> JobType:
    """InvalidInputError for a name that is of none."""
    known = JOB_TYPES.get(name)
    if known is None:
        raise InvalidInputError("Unknown job type", (("jobType", f"is not a type of job: {name!r}"),))
    return known
