"""Shared by ops and assets: the services, strict run configs, metadata, and errors as Dagster
failures and retries."""

import os
import re
import socket
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Self, Union, cast, get_args, get_origin

import dagster as dg
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.core.errors import (
    AutomationError,
    InvalidInputError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.core.json_model import ID_DIGITS, LARGEST_ID
from automation_pipeline.core.logs import CORRELATION_TAG, correlated, usable_id
from automation_pipeline.core.masking import markdown_cell
from automation_pipeline.core.settings import load_settings


def correlation_of(run: dg.DagsterRun) -> str:
    """Users can edit tags: a tag that is not valid in a header is ignored."""
    tag = run.tags.get(CORRELATION_TAG)
    return tag if tag and usable_id(tag) == tag else run.run_id


if TYPE_CHECKING:
    from automation_pipeline.bootstrap import Services


class ServicesResource(dg.ConfigurableResource):
    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator[Self]:
        """Every process of a run initialises the resource before its steps, so everything in them
        has the run's correlation id. Sensors have no run."""
        if context.run is None:
            yield self
            return
        with correlated(correlation_of(context.run)):
            yield self

    def get(self) -> "Services":
        from automation_pipeline.bootstrap import services  # noqa: PLC0415  only when needed

        return services()


# Dagster's config types for Python types also accept `{env: NAME}`; these types do not.
PLAIN: dict[object, object] = {kind: dg.Field(kind).config_type for kind in (str, int, bool)}


class StrictConfig(dg.Config):  # noqa: TID251  the base of all configs
    """Refuses unknown fields, and `{env: NAME}` as a value: with it, any user who may launch a run
    could read the worker's secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Dagster derives the schema of a run config from these annotations; pydantic does not read
        them again."""
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            field.annotation = cast("type", plain(field.annotation))


def plain(annotation: object) -> object:
    """The annotation for Dagster, without types that accept an environment variable."""
    origin = get_origin(annotation)
    if origin is None or origin is Literal:
        return PLAIN.get(annotation, annotation)
    parts = tuple(plain(part) for part in get_args(annotation))
    return Union[parts] if origin is UnionType else cast("Any", origin)[parts]  # noqa: UP007  built at run time


def every(seconds: int) -> int:
    """A sensor's interval; `AUTOMATION_SENSOR_MAX_INTERVAL_SECONDS` can shorten it."""
    return min(seconds, load_settings().automation_sensor_max_interval_seconds)


_DIGITS = re.compile(ID_DIGITS)


def check_ids(**given: int | None) -> None:
    """Raise an InvalidInputError that names every invalid id. None means that there is no id."""
    faults = tuple(
        (name, f"must be from 1 to {LARGEST_ID}")
        for name, one in given.items()
        if one is not None and not 1 <= one <= LARGEST_ID
    )
    if faults:
        raise InvalidInputError("Invalid config", faults)


def id_in(given: object) -> int | None:
    """None for an invalid id: users may write any text into configs and tags."""
    text = str(given)
    return int(text) if _DIGITS.fullmatch(text) and int(text) <= LARGEST_ID else None


class SelectionConfig(StrictConfig):
    """Dagster has no optional enum: the description of `dateRange` lists its values."""

    model_config = ConfigDict(alias_generator=to_camel)

    mode: Literal["date_range", "manual", "filter"] = Field(
        description="`manual` takes `ficheIds`; `date_range` and `filter` are synonyms and take `dateRange`."
    )
    date_range: str | None = Field(
        default=None,
        description="`last_24h`, `yesterday`, `last_week`, `last_month` or `custom`; needed unless the mode is manual.",
    )
    custom_start_date: str | None = Field(
        default=None, description="The first day of `custom`, as a quoted DD/MM/YYYY or YYYY-MM-DD."
    )
    custom_end_date: str | None = Field(
        default=None,
        description="The last day of `custom`, in the same format; the default is the first day.",
    )
    groupes: list[str] = Field(
        default=[], description="Only fiches of these groupes; empty takes all."
    )
    only_with_recordings: bool = Field(
        default=False, description="Skip fiches without a recording."
    )
    only_unaudited: bool = Field(default=False, description="Skip fiches that have an audit.")
    use_rlm: bool = Field(
        default=False, description="The model reads the calls with tools instead of in the prompt."
    )
    max_fiches: int | None = Field(
        default=None, description="The maximum number of fiches; no limit by default."
    )
    max_recordings_per_fiche: int | None = Field(
        default=None,
        description="Skip fiches with more recordings; the default is AUTOMATION_MAX_RECORDINGS_PER_FICHE.",
    )
    fiche_ids: list[str] = Field(
        default=[],
        description='The fiches of `manual`, each quoted; one string may contain several: "1900417, 1900418".',
    )

    def given(self) -> dict[str, object]:
        """The given fields in the format of a schedule's JSON, without the defaults that Dagster
        fills in."""
        return self.model_dump(by_alias=True, exclude_defaults=True)


STEP_RETRIES = 3
STEP_RETRY_SECONDS = 5.0

# For assets, whose process may die; runs of jobs are requested again instead. Steps inside the
# run's own process must not have a retry policy: it also catches the interrupt that terminates a
# run, and retries.
CRASH_RETRIES = (
    dg.RetryPolicy(max_retries=STEP_RETRIES, delay=1)
    if load_settings().automation_executor in {"multiprocess", "k8s"}
    else None
)


def job_tags(max_runtime_seconds: int = 18_000) -> dict[str, str]:
    """Tags of every job: Dagster repeats all steps of a run, and never requests a run again itself."""
    return {
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": str(max_runtime_seconds),
    }


@contextmanager
def dagster_errors() -> Generator[None]:
    """Raise transient errors as a retry request and permanent errors as a failure."""
    try:
        yield
    except TransientError as error:
        wait = error.retry_after_seconds or STEP_RETRY_SECONDS
        raise dg.RetryRequested(max_retries=STEP_RETRIES, seconds_to_wait=wait) from error
    except PermanentError as error:
        raise dg.Failure(sentence_of(error), allow_retries=False) from None


@contextmanager
def wait_for_other_worker(
    context: dg.OpExecutionContext, busy: type[TransientError]
) -> Generator[None]:
    """Retry until the claim of a killed worker expires. If another worker is still active after
    that, there is nothing to do."""
    try:
        yield
    except busy as error:
        if context.retry_number < STEP_RETRIES:
            raise
        context.log.info(f"{error} A second worker has nothing to do.")


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def owner_of(run: dg.DagsterRun) -> str:
    """The name under which the work of this process for the run takes claims."""
    return f"{worker_name()}/{run.run_id}"


Metadata = dict[str, dg.MetadataValue]


class Markdown(str):
    """Text that Dagster shows as Markdown."""

    __slots__ = ()


def as_metadata(values: Mapping[str, object]) -> Metadata:
    """Dagster serialises metadata when it stores the event and accepts only plain values, so a
    StrEnum becomes a text. None and empty values are left out."""
    return {
        name: _metadata_value(value) for name, value in values.items() if value not in (None, "")
    }


def _metadata_value(value: object) -> dg.MetadataValue:
    match value:
        case Markdown():
            return dg.MetadataValue.md(str(value))
        case int():
            return dg.MetadataValue.int(int(value))
        case float():
            return dg.MetadataValue.float(value)
        case datetime():
            return dg.MetadataValue.timestamp(value)
        case Path():
            return dg.MetadataValue.path(str(value))
        case _:
            return dg.MetadataValue.text(str(value))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Markdown:
    """Empty without rows. Cells are escaped."""
    lines = [
        f"| {' | '.join('–' if cell is None else markdown_cell(cell) for cell in row)} |"
        for row in rows
    ]
    if not lines:
        return Markdown()
    return Markdown("\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]))


def counts_table(of: str, counts: Mapping[str, int]) -> Markdown:
    """The most frequent first."""
    return table((of, "Count"), sorted(counts.items(), key=itemgetter(1), reverse=True))


def error_message_of(error: BaseException | None) -> str:
    """The message of a step's exception. A RetryRequested has no message: its cause has it."""
    if isinstance(error, dg.Failure) and error.description:
        return error.description
    if isinstance(error, dg.RetryRequested) and error.__cause__ is not None:
        return error_message_of(error.__cause__)
    if isinstance(error, AutomationError):
        return sentence_of(error)
    return f"{type(error).__name__}: {error}" if error else "The step failed"
