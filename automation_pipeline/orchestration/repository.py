"""The definitions as Dagster asks for them. Whoever asks for one job, as the processes of a run do,
loads that alone: its imports are a third of all. Everybody else gets the whole."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import TYPE_CHECKING

import dagster as dg

from automation_pipeline.core.background import gc_paused

if TYPE_CHECKING:
    from dagster.components.core.component_tree import ComponentTree

NAME = "__repository__"  # as Dagster calls the only one of a code location


class OwnJobFirst(dg.RepositoryData):
    """`alone` are the jobs that need none of the other definitions; `others` the names of those
    that do. `whole` holds them all."""

    def __init__(
        self,
        alone: Mapping[str, Callable[[], dg.Definitions]],
        others: Sequence[str],
        whole: Callable[[], dg.Definitions],
    ) -> None:
        self._alone, self._others, self._load_whole = alone, others, whole
        self._jobs: dict[str, dg.JobDefinition] = {}

    @cached_property
    def _whole(self) -> dg.RepositoryDefinition:
        with gc_paused():
            return self._load_whole().get_repository_def()

    def get_job_names(self) -> Sequence[str]:
        return [*self._alone, *self._others]

    def get_job(self, job_name: str) -> dg.JobDefinition:
        load = self._alone.get(job_name)
        if load is None or "_whole" in vars(self):
            return self._whole.get_job(job_name)
        if job_name not in self._jobs:
            with gc_paused():
                self._jobs[job_name] = load().get_repository_def().get_job(job_name)
        return self._jobs[job_name]

    def get_all_jobs(self) -> Sequence[dg.JobDefinition]:
        return self._whole.get_all_jobs()

    def get_all_schedules(self) -> Sequence[dg.ScheduleDefinition]:
        return self._whole.schedule_defs

    def get_all_sensors(self) -> Sequence[dg.SensorDefinition]:
        return self._whole.sensor_defs

    def get_source_assets_by_key(self) -> Mapping[dg.AssetKey, dg.SourceAsset]:
        return self._whole.source_assets_by_key

    def get_assets_defs_by_key(self) -> Mapping[dg.AssetKey, dg.AssetsDefinition]:
        return self._whole.assets_defs_by_key

    def get_asset_checks_defs_by_key(self) -> Mapping[dg.AssetCheckKey, dg.AssetChecksDefinition]:
        return self._whole.asset_checks_defs_by_key

    def get_top_level_resources(self) -> Mapping[str, dg.ResourceDefinition]:
        return self._whole.get_top_level_resources()

    def get_env_vars_by_top_level_resource(self) -> Mapping[str, AbstractSet[str]]:
        return self._whole.get_env_vars_by_top_level_resource()

    def get_component_tree(self) -> "ComponentTree | None":
        return self._whole.get_component_tree()
