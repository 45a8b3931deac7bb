"""Audit configurations by the stages and stores."""

from collections.abc import Mapping, Sequence

from automation_pipeline.audits.stages.delete_config import delete_config
from automation_pipeline.audits.stages.import_config import Imported, import_config
from automation_pipeline.audits.stages.reorder_steps import reorder_steps
from automation_pipeline.audits.stages.set_config_active import set_config_active
from automation_pipeline.audits.store.configs import ListedConfig, StoredConfig, get_config, list_configs
from automation_pipeline.bootstrap import Services


class LocalConfigs:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(self, *, include_inactive: bool) -> Sequence[ListedConfig]:
        with self._services.database.reading() as session:
            return list_configs(session, include_inactive=include_inactive)

    def get(self, config_id: int) -> StoredConfig:
        with self._services.database.reading() as session:
            return get_config(session, config_id)

    def import_(self, given: Mapping[str, object], *, update: bool) -> Imported:
        return import_config(given, update=update, database=self._services.database, clock=self._services.clock)

    def set_active(self, config_id: int, *, active: bool) -> StoredConfig:
        our = self._services
        return set_config_active(config_id, active=active, database=our.database, clock=our.clock)

    def delete(self, config_id: int) -> None:
        delete_config(config_id, database=self._services.database)

    def reorder(self, config_id: int, step_ids: Sequence[int]) -> StoredConfig:
        return reorder_steps(config_id, step_ids, database=self._services.database, clock=self._services.clock)
