"""A selection of fiches in the launchpad, under the names of `ficheSelection`. The domain judges what is said."""

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.orchestration.config import StrictConfig


class SelectionConfig(StrictConfig):
    """Dagster has no optional choice: what `dateRange` may be is in its description."""

    model_config = ConfigDict(alias_generator=to_camel)

    mode: Literal["date_range", "manual", "filter"] = Field(
        description="`manual` takes `ficheIds`; `date_range` and `filter` are one and take the days of `dateRange`."
    )
    date_range: str | None = Field(
        default=None,
        description="`last_24h`, `yesterday`, `last_week`, `last_month` or `custom`; needed unless the mode is manual.",
    )
    custom_start_date: str | None = Field(
        default=None, description="The first day of `custom`, as a quoted DD/MM/YYYY or YYYY-MM-DD."
    )
    custom_end_date: str | None = Field(
        default=None, description="The last day of `custom`, as the first; without it, the first day alone."
    )
    groupes: list[str] = Field(default=[], description="Only fiches of these groupes; empty takes all.")
    only_with_recordings: bool = Field(default=False, description="Leave out fiches without a recording.")
    only_unaudited: bool = Field(default=False, description="Leave out fiches that have an audit.")
    use_rlm: bool = Field(default=False, description="The model reads the calls with tools instead of in the prompt.")
    max_fiches: int | None = Field(default=None, description="At most so many fiches; without it, all.")
    max_recordings_per_fiche: int | None = Field(
        default=None,
        description="Leave out fiches with more recordings; without it, AUTOMATION_MAX_RECORDINGS_PER_FICHE.",
    )
    fiche_ids: list[str] = Field(
        default=[], description='The fiches of `manual`, each quoted; one text may hold several: "1900417, 1900418".'
    )

    def said(self) -> dict[str, object]:
        """What was given, as the JSON of a schedule has it: Dagster fills in the defaults of what was not."""
        return self.model_dump(by_alias=True, exclude_defaults=True)
