"""A minimal agent that tests run as a process. AGENT_API, AGENT_TOKEN and AGENT_HOST configure it.
Its work waits for the file AGENT_DONE. It prints each step, and ends when no work is left."""

import os
import pathlib
import random
import sys
import threading

import httpx

HOST = f"/api/agents/hosts/{os.environ['AGENT_HOST']}"
DONE = pathlib.Path(os.environ["AGENT_DONE"])
HEARTBEAT_SECONDS = 0.2  # 30 in earnest
token = {"Authorization": f"Bearer {os.environ['AGENT_TOKEN']}"}
api = httpx.Client(base_url=os.environ["AGENT_API"], headers=token, timeout=60)
rest = threading.Event().wait


class LostError(Exception):
    """Another agent has taken over the attempt."""


def ask(method: str, path: str, **body: object):  # noqa: ANN201  JSON
    answered = api.request(method, path, json=body)
    if answered.status_code == 409:
        raise LostError(answered.json()["error"])
    return answered.raise_for_status().json()["data"]


def do(job: dict) -> str:
    run, mine = (
        f"/api/agents/runs/{job['runId']}",
        {name: job[name] for name in ("attemptNo", "leaseToken")},
    )
    while True:
        orders = ask("POST", f"{run}/progress", **mine, message="Waiting for the file")
        sys.stdout.write(f"heartbeat of attempt {job['attemptNo']}\n")
        sys.stdout.flush()
        if orders["cancelRequested"] or DONE.exists():
            break
        rest(HEARTBEAT_SECONDS)
    status = "cancelled" if orders["cancelRequested"] else "success"
    return ask(
        "POST", f"{run}/result", **mine, status=status, result={"attempt": job["attemptNo"]}
    )["status"]


def main() -> None:
    wait, jobs = 1.0, ask("GET", f"{HOST}/runs") or ask("POST", f"{HOST}/claim")
    while jobs or not DONE.exists():
        for job in jobs:
            try:
                sys.stdout.write(f"ended as {do(job)}\n")
            except LostError as lost:
                sys.stdout.write(f"lost: {lost}\n")
            sys.stdout.flush()
        wait = 1.0 if jobs else min(wait * 2, 30.0)
        rest(0 if jobs else wait * random.uniform(0.8, 1.2))
        jobs = ask("POST", f"{HOST}/claim", most=4)


if __name__ == "__main__":
    main()
