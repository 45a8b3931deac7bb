"""Dead letters and guardrails of projects by the API."""

from collections.abc import Sequence
from typing import cast
from urllib.parse import quote

from automation_pipeline.cli.desk.remote.api import Api, Document, as_model, data_of, read
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.pricing.domain.dead_letters import DeadLetterReport
from automation_pipeline.pricing.domain.policy import Policy

LETTERS = "/api/pricing/dead-letters"


class RemoteDeadLetters:
    def __init__(self, api: Api) -> None:
        self._api = api

    def report(self, project_id: str) -> DeadLetterReport:
        return as_model(DeadLetterReport, data_of(self._api.get(LETTERS, {"project": project_id})))

    def retry(self, project_id: str, *, force: bool) -> Sequence[int]:
        asked = self._api.post(f"{LETTERS}/retry", {"force": force}, query={"project": project_id})
        return read(lambda: [int(run_id) for run_id in cast("Sequence[str]", data_of(asked)["runIds"])])

    def acknowledge(self, project_id: str, target_ids: Sequence[int] | None) -> int:
        named = {} if target_ids is None else {"targetIds": [str(target_id) for target_id in target_ids]}
        told = data_of(self._api.post(f"{LETTERS}/acknowledge", named, query={"project": project_id}))
        return read(lambda: int(str(told["acknowledged"])))


class RemotePolicies:
    def __init__(self, api: Api) -> None:
        self._api = api

    def get(self, project_id: str) -> Policy | None:
        try:
            return as_model(Policy, data_of(self._api.get(_path(project_id))))
        except NotFoundError:
            return None

    def put(self, project_id: str, given: Document) -> Policy:
        return as_model(Policy, data_of(self._api.put(_path(project_id), given)))

    def remove(self, project_id: str) -> None:
        self._api.delete(_path(project_id))


def _path(project_id: str) -> str:
    return f"/api/pricing/policies/{quote(project_id, safe='')}"
