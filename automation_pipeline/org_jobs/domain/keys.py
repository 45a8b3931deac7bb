"""Keys that make one thing one thing, however often it is tried."""

JOB = "org_job"
PRODUCER = "org-jobs"


def run_key(run_id: int) -> str:
    """The same for all attempts: whoever is asked by a second one knows that it is the same wish."""
    return f"org-job-run-{run_id}"


def attempt_key(run_id: int, attempt_no: int) -> str:
    return f"{run_id}:{attempt_no}"


def request_key(run_id: int, number: int) -> str:
    """Of the n-th worker that Dagster is asked for on behalf of a run."""
    return f"org-job-{run_id}-{number}"


def queue_name(org_id: str) -> str:
    return f"jobs:{org_id}"
