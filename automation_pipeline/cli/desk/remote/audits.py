"""Audits by the API."""

from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import TypeAdapter

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.audit_filter import AuditFilter
from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.domain.requests import Requested
from automation_pipeline.audits.stages.request_audits import Asking, Filed
from automation_pipeline.audits.stages.request_rerun import RequestedRerun
from automation_pipeline.audits.store.followed import RerunStanding
from automation_pipeline.cli.desk.ports import NeverBegun
from automation_pipeline.cli.desk.remote.api import Api, Document, data_of, list_of, read
from automation_pipeline.cli.desk.remote.requests import asked_for
from automation_pipeline.core.errors import NotFoundError

PATH = "/api/audits"


class RemoteAudits:
    def __init__(self, api: Api) -> None:
        self._api = api

    def request(self, fiche_ids: Sequence[str], asking: Asking) -> Filed:
        fiches = list(dict.fromkeys(fiche_ids))
        wish = {"audit_config_id": str(asking.audit_config_id), "use_rlm": asking.use_rlm}
        if not asking.batch:
            [fiche_id] = fiches
            source = {"fiche_id": fiche_id, "trigger_source": asking.trigger_source}
            one = self._api.post(PATH, {**wish, **source})
            return Filed([Requested(fiche_id, str(read(lambda: one["event_id"])))], None)
        batch = self._api.post(f"{PATH}/batch", {**wish, "fiche_ids": fiches})
        ids = read(lambda: zip(_texts(batch["fiche_ids"]), _texts(batch["event_ids"]), strict=True))
        return Filed([Requested(fiche_id, key) for fiche_id, key in ids], str(batch["batch_id"]))

    def followed(self, requested: Sequence[Requested]) -> Mapping[str, Standing | NeverBegun]:
        filed = asked_for(self._api, "audits", [one.tracking_id for one in requested])
        found = {str(one["key"]): _outcome(one) for one in filed}
        in_order = {one.tracking_id: found.get(one.tracking_id) for one in requested}
        return {key: outcome for key, outcome in in_order.items() if outcome is not None}

    def listed(self, chosen: AuditFilter) -> tuple[Sequence[Document], int]:
        wanted: dict[str, object] = chosen.model_dump(mode="json", exclude_defaults=True)
        answer = self._api.get(PATH, {name: _parameter(value) for name, value in wanted.items()})
        pagination = read(lambda: cast("Mapping[str, int]", answer["pagination"]))
        return list_of(answer), read(lambda: int(pagination["total"]))

    def get(self, audit_id: int) -> Document:
        return data_of(self._api.get(f"{PATH}/{audit_id}"))

    def step(self, place: Place) -> tuple[Document, Document]:
        document = self.get(place.audit_id)
        result = _part(document, "resultData")
        audit = _part(result, "audit")
        results = dict(_part(audit, "results"))
        steps = cast("Sequence[Document]", results.pop("steps", ()))
        found = next((one for one in steps if _part(one, "step_metadata")["position"] == place.position), None)
        if found is None:
            raise NotFoundError(f"Audit {place.audit_id} has no step {place.position}")
        rest = {**result, "audit": {**audit, "results": results}}
        whole = {name: value for name, value in document.items() if name != "stepResults"}
        return found, {**whole, "resultData": rest}

    def review(self, place: Place, given: Document) -> None:
        self._api.patch(f"{_path(place)}/review", given)

    def delete(self, audit_id: int) -> None:
        self._api.delete(f"{PATH}/{audit_id}")

    def restore(self, audit_id: int) -> None:
        self._api.patch(f"{PATH}/{audit_id}", {"deleted": False})

    def request_rerun(self, place: Place, instructions: str | None) -> RequestedRerun:
        told = {} if instructions is None else {"customPrompt": instructions}
        asked = self._api.post(f"{_path(place)}/rerun", told)
        rerun_id, event_id = read(lambda: (str(asked["rerun_id"]), str(asked["event_id"])))
        return RequestedRerun(rerun_id, rerun_id, event_id)

    def rerun_standing(self, rerun_id: str) -> RerunStanding:
        filed = asked_for(self._api, "reruns", [rerun_id])
        if not filed:
            return RerunStanding(begun=False, done=False)
        refused = cast("str | None", filed[0]["refused"])
        return RerunStanding(bool(filed[0]["begun"]), bool(filed[0]["done"]), refused)


def _path(place: Place) -> str:
    step = f"{PATH}/{place.audit_id}/steps/{place.position}"
    return step if place.point is None else f"{step}/control-points/{place.point}"


def _outcome(one: Document) -> Standing | NeverBegun | None:
    if one["refused"] is not None:
        return NeverBegun(str(one["fiche_id"]), str(one["refused"]))
    standing = one["standing"]
    return None if standing is None else read(lambda: TypeAdapter(Standing).validate_python(standing))


def _parameter(value: object) -> object:
    """Lists are separated by commas."""
    return ",".join(map(str, cast("Sequence[object]", value))) if isinstance(value, list) else value


def _part(document: Document, name: str) -> Document:
    return cast("Document", document.get(name) or {})


def _texts(value: object) -> Sequence[str]:
    return cast("Sequence[str]", value)
