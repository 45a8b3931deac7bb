"""Audit configurations by the API."""

from collections.abc import Sequence

from automation_pipeline.audits.domain.config import AuditConfig, AuditStep
from automation_pipeline.audits.domain.config_document import parse_config
from automation_pipeline.audits.domain.config_shown import ConfigShown, ConfigStepShown
from automation_pipeline.audits.stages.import_config import Imported, Outcome
from automation_pipeline.audits.store.configs import ListedConfig, StoredConfig
from automation_pipeline.cli.desk.remote.api import Api, Document, as_model, data_of, every_page, read

PATH = "/api/audit-configs"


class RemoteConfigs:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(self, *, include_inactive: bool) -> Sequence[ListedConfig]:
        query = {"include_inactive": include_inactive, "include_steps": True, "include_stats": True}
        shown = [as_model(ConfigShown, one) for one in every_page(self._api, PATH, query)]
        return [ListedConfig(_stored(one), one.stats.all_audits if one.stats else 0) for one in shown]

    def get(self, config_id: int) -> StoredConfig:
        return _stored(as_model(ConfigShown, data_of(self._api.get(f"{PATH}/{config_id}"))))

    def import_(self, given: Document, *, update: bool) -> Imported:
        config = parse_config(given)
        told = data_of(self._api.post(f"{PATH}/import", given, query={"update": update}))
        return read(lambda: Imported(int(str(told["id"])), Outcome(str(told["outcome"])), config))

    def set_active(self, config_id: int, *, active: bool) -> StoredConfig:
        self._api.put(f"{PATH}/{config_id}", {"isActive": active})
        return self.get(config_id)

    def delete(self, config_id: int) -> None:
        self._api.delete(f"{PATH}/{config_id}")

    def reorder(self, config_id: int, step_ids: Sequence[int]) -> StoredConfig:
        self._api.put(f"{PATH}/{config_id}/steps/reorder", {"stepIds": [str(step_id) for step_id in step_ids]})
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
    values = {"severity" if name == "severity_level" else name: value for name, value in vars(shown).items()}
    return AuditStep(**{name: value for name, value in values.items() if name != "id"})
