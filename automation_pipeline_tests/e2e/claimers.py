"""Agents that take all they are given, or say how it ended: run as processes, all at once."""

from collections.abc import Sequence

import httpx

Taken = tuple[int, str, str]


def take_all(url: str, token: str, host_ids: Sequence[int]) -> list[Taken]:
    """Host, run and type of each, until none of the hosts is given any more."""
    taken: list[Taken] = []
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=120) as api:
        while True:
            before = len(taken)
            for host_id in host_ids:
                answered = api.post(f"/api/agents/hosts/{host_id}/claim", json={"most": 3}).raise_for_status()
                taken += [(host_id, job["runId"], job["type"]) for job in answered.json()["data"]]
            if len(taken) == before:
                return taken


def say(url: str, token: str, run_id: int, status: str) -> tuple[str, int]:
    """How it ended, and what the answer was."""
    result = {"attemptNo": 1, "leaseToken": 1, "status": status}
    headers = {"Authorization": f"Bearer {token}"}
    answered = httpx.post(f"{url}/api/agents/runs/{run_id}/result", json=result, headers=headers, timeout=120)
    return status, answered.status_code
