"""How a filed request becomes a Dagster run: each job's first op takes the request's config."""

import dagster as dg

from automation_pipeline.storage.run_requests import RunWish

DOORS = {"automation_run": "open_run"}


def run_request(wish: RunWish) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=wish.key,
        job_name=wish.job,
        run_config={"ops": {DOORS[wish.job]: {"config": dict(wish.config)}}},
        tags={**wish.tags, "automation/request_key": wish.key},
    )
