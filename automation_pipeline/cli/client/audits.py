"""Audits and audit configurations, here and by the API."""

from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import TypeAdapter

from automation_pipeline.audits.configs import (
    ImportedConfig,
    Outcome,
    delete_config,
    import_config,
    reorder_steps,
    set_config_active,
)
from automation_pipeline.audits.models.audits import AuditSummary, RequestedAudit, StepLocation
from automation_pipeline.audits.models.configs import (
    AuditConfig,
    AuditStep,
    ConfigShown,
    ConfigStepShown,
    parse_config,
)
from automation_pipeline.audits.models.requests import AuditFilter
from automation_pipeline.audits.queries.configs import (
    ListedConfig,
    StoredConfig,
    get_config,
    list_configs,
)
from automation_pipeline.audits.queries.documents import (
    audit_document,
    audit_step_document,
    list_audits,
)
from automation_pipeline.audits.queries.requests import (
    RerunStatus,
    audit_request_outcomes,
    rerun_request_outcomes,
)
from automation_pipeline.audits.requests import (
    AuditRequestOptions,
    FiledAudits,
    RequestedRerun,
    request_audits,
    request_rerun,
)
from automation_pipeline.audits.reviews import (
    delete_audit,
    restore_audit,
    review_control_point,
    review_step,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.client.http import (
    Api,
    as_model,
    asked_for,
    data_of,
    every_page,
    list_of,
    read,
)
from automation_pipeline.cli.client.http import Document as ApiDocument
from automation_pipeline.cli.client.ports import Document, NeverStarted
from automation_pipeline.core.errors import NotFoundError


class LocalAudits:
    def __init__(self, services: Services) -> None:
        self._services = services

    def request(self, fiche_ids: Sequence[str], asking: AuditRequestOptions) -> FiledAudits:
        return request_audits(
            fiche_ids, asking, database=self._services.database, clock=self._services.clock
        )

    def followed(
        self, requested: Sequence[RequestedAudit]
    ) -> Mapping[str, AuditSummary | NeverStarted]:
        fiches = {one.tracking_id: one.fiche_id for one in requested}
        with self._services.database.reading() as session:
            found = audit_request_outcomes(session, list(fiches))
        return {
            key: NeverStarted(fiches[key], one) if isinstance(one, str) else one
            for key, one in found.items()
        }

    def listed(self, chosen: AuditFilter) -> tuple[Sequence[Document], int]:
        with self._services.database.reading() as session:
            return list_audits(session, chosen)

    def get(self, audit_id: int) -> Document:
        with self._services.database.reading() as session:
            return audit_document(session, audit_id)

    def step(self, place: StepLocation) -> tuple[Document, Document]:
        with self._services.database.reading() as session:
            audit = audit_document(session, place.audit_id, details=False)
            return audit_step_document(session, place), audit

    def review(self, place: StepLocation, given: Document) -> None:
        database = self._services.database
        if place.point is None:
            review_step(place.audit_id, place.position, given, database=database)
        else:
            review_control_point(
                place.audit_id, place.position, place.point, given, database=database
            )

    def delete(self, audit_id: int) -> None:
        delete_audit(audit_id, database=self._services.database)

    def restore(self, audit_id: int) -> None:
        restore_audit(audit_id, database=self._services.database)

    def request_rerun(self, place: StepLocation, instructions: str | None) -> RequestedRerun:
        services = self._services
        return request_rerun(
            place, instructions=instructions, database=services.database, clock=services.clock
        )

    def rerun_standing(self, rerun_id: str) -> RerunStatus:
        with self._services.database.reading() as session:
            return rerun_request_outcomes(session, [rerun_id])[rerun_id]


class LocalConfigs:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(self, *, include_inactive: bool) -> Sequence[ListedConfig]:
        with self._services.database.reading() as session:
            return list_configs(session, include_inactive=include_inactive)

    def get(self, config_id: int) -> StoredConfig:
        with self._services.database.reading() as session:
            return get_config(session, config_id)

    def import_(self, given: Mapping[str, object], *, update: bool) -> ImportedConfig:
        return import_config(
            given, update=update, database=self._services.database, clock=self._services.clock
        )

    def set_active(self, config_id: int, *, active: bool) -> StoredConfig:
        services = self._services
        return set_config_active(
            config_id, active=active, database=services.database, clock=services.clock
        )

    def delete(self, config_id: int) -> None:
        delete_config(config_id, database=self._services.database)

    def reorder(self, config_id: int, step_ids: Sequence[int]) -> StoredConfig:
        return reorder_steps(
            config_id, step_ids, database=self._services.database, clock=self._services.clock
        )


AUDITS_PATH = "/api/audits"


class RemoteAudits:
    def __init__(self, api: Api) -> None:
        self._api = api

    def request(self, fiche_ids: Sequence[str], asking: AuditRequestOptions) -> FiledAudits:
        fiches = list(dict.fromkeys(fiche_ids))
        wish = {"audit_config_id": str(asking.audit_config_id), "use_rlm": asking.use_rlm}
        if not asking.batch:
            [fiche_id] = fiches
            source = {"fiche_id": fiche_id, "trigger_source": asking.trigger_source}
            one = self._api.post(AUDITS_PATH, {**wish, **source})
            return FiledAudits([RequestedAudit(fiche_id, str(read(lambda: one["event_id"])))], None)
        batch = self._api.post(f"{AUDITS_PATH}/batch", {**wish, "fiche_ids": fiches})
        ids = read(lambda: zip(_texts(batch["fiche_ids"]), _texts(batch["event_ids"]), strict=True))
        return FiledAudits(
            [RequestedAudit(fiche_id, key) for fiche_id, key in ids], str(batch["batch_id"])
        )

    def followed(
        self, requested: Sequence[RequestedAudit]
    ) -> Mapping[str, AuditSummary | NeverStarted]:
        filed = asked_for(self._api, "audits", [one.tracking_id for one in requested])
        found = {str(one["key"]): _outcome(one) for one in filed}
        in_order = {one.tracking_id: found.get(one.tracking_id) for one in requested}
        return {key: outcome for key, outcome in in_order.items() if outcome is not None}

    def listed(self, chosen: AuditFilter) -> tuple[Sequence[ApiDocument], int]:
        wanted: dict[str, object] = chosen.model_dump(mode="json", exclude_defaults=True)
        answer = self._api.get(
            AUDITS_PATH, {name: _parameter(value) for name, value in wanted.items()}
        )
        pagination = read(lambda: cast("Mapping[str, int]", answer["pagination"]))
        return list_of(answer), read(lambda: int(pagination["total"]))

    def get(self, audit_id: int) -> ApiDocument:
        return data_of(self._api.get(f"{AUDITS_PATH}/{audit_id}"))

    def step(self, place: StepLocation) -> tuple[ApiDocument, ApiDocument]:
        document = self.get(place.audit_id)
        result = _part(document, "resultData")
        audit = _part(result, "audit")
        results = dict(_part(audit, "results"))
        steps = cast("Sequence[ApiDocument]", results.pop("steps", ()))
        found = next(
            (one for one in steps if _part(one, "step_metadata")["position"] == place.position),
            None,
        )
        if found is None:
            raise NotFoundError(f"Audit step {place.audit_id}:{place.position} not found")
        rest = {**result, "audit": {**audit, "results": results}}
        whole = {name: value for name, value in document.items() if name != "stepResults"}
        return found, {**whole, "resultData": rest}

    def review(self, place: StepLocation, given: ApiDocument) -> None:
        self._api.patch(f"{_path(place)}/review", given)

    def delete(self, audit_id: int) -> None:
        self._api.delete(f"{AUDITS_PATH}/{audit_id}")

    def restore(self, audit_id: int) -> None:
        self._api.patch(f"{AUDITS_PATH}/{audit_id}", {"deleted": False})

    def request_rerun(self, place: StepLocation, instructions: str | None) -> RequestedRerun:
        told = {} if instructions is None else {"customPrompt": instructions}
        asked = self._api.post(f"{_path(place)}/rerun", told)
        rerun_id, event_id = read(lambda: (str(asked["rerun_id"]), str(asked["event_id"])))
        return RequestedRerun(rerun_id, rerun_id, event_id)

    def rerun_standing(self, rerun_id: str) -> RerunStatus:
        filed = asked_for(self._api, "reruns", [rerun_id])
        if not filed:
            return RerunStatus(begun=False, done=False)
        refused = cast("str | None", filed[0]["refused"])
        return RerunStatus(bool(filed[0]["begun"]), bool(filed[0]["done"]), refused)


def _path(place: StepLocation) -> str:
    step = f"{AUDITS_PATH}/{place.audit_id}/steps/{place.position}"
    return step if place.point is None else f"{step}/control-points/{place.point}"


def _outcome(one: ApiDocument) -> AuditSummary | NeverStarted | None:
    if one["refused"] is not None:
        return NeverStarted(str(one["fiche_id"]), str(one["refused"]))
    standing = one["standing"]
    return (
        None
        if standing is None
        else read(lambda: TypeAdapter(AuditSummary).validate_python(standing))
    )


def _parameter(value: object) -> object:
    """Lists are separated by commas."""
    return ",".join(map(str, cast("Sequence[object]", value))) if isinstance(value, list) else value


def _part(document: ApiDocument, name: str) -> ApiDocument:
    return cast("ApiDocument", document.get(name) or {})


def _texts(value: object) -> Sequence[str]:
    return cast("Sequence[str]", value)


CONFIGS_PATH = "/api/audit-configs"


class RemoteConfigs:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(self, *, include_inactive: bool) -> Sequence[ListedConfig]:
        query = {"include_inactive": include_inactive, "include_steps": True, "include_stats": True}
        shown = [as_model(ConfigShown, one) for one in every_page(self._api, CONFIGS_PATH, query)]
        return [
            ListedConfig(_stored(one), one.stats.all_audits if one.stats else 0) for one in shown
        ]

    def get(self, config_id: int) -> StoredConfig:
        return _stored(as_model(ConfigShown, data_of(self._api.get(f"{CONFIGS_PATH}/{config_id}"))))

    def import_(self, given: ApiDocument, *, update: bool) -> ImportedConfig:
        config = parse_config(given)
        told = data_of(self._api.post(f"{CONFIGS_PATH}/import", given, query={"update": update}))
        return read(
            lambda: ImportedConfig(int(str(told["id"])), Outcome(str(told["outcome"])), config)
        )

    def set_active(self, config_id: int, *, active: bool) -> StoredConfig:
        self._api.put(f"{CONFIGS_PATH}/{config_id}", {"isActive": active})
        return self.get(config_id)

    def delete(self, config_id: int) -> None:
        self._api.delete(f"{CONFIGS_PATH}/{config_id}")

    def reorder(self, config_id: int, step_ids: Sequence[int]) -> StoredConfig:
        self._api.put(
            f"{CONFIGS_PATH}/{config_id}/steps/reorder",
            {"stepIds": [str(step_id) for step_id in step_ids]},
        )
        return self.get(config_id)


def _stored(shown: ConfigShown) -> StoredConfig:
    steps = shown.steps or ()
    config = AuditConfig(
        name=shown.name,
        description=shown.description,
        system_prompt=shown.system_prompt,
        is_active=shown.is_active,
        run_automatically=shown.run_automatically,
        created_by=shown.created_by,
        steps=tuple(map(_step, steps)),
    )
    return StoredConfig(
        id=shown.id,
        config=config,
        step_ids=tuple(step.id for step in steps),
        created_at=shown.created_at,
        updated_at=shown.updated_at,
    )


def _step(shown: ConfigStepShown) -> AuditStep:
    values = {
        "severity" if name == "severity_level" else name: value
        for name, value in vars(shown).items()
    }
    return AuditStep(**{name: value for name, value in values.items() if name != "id"})
