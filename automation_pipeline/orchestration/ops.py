"""What ops and assets share: the services, strict run configs, and errors as Dagster's verdicts."""

import re
from collections.abc import Generator
from contextlib import contextmanager
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
from automation_pipeline.core.settings import load_settings


def correlation_of(run: dg.DagsterRun) -> str:
    """Users can write tags: one that cannot be part of a header is ignored."""
    tag = run.tags.get(CORRELATION_TAG)
    return tag if tag and usable_id(tag) == tag else run.run_id


if TYPE_CHECKING:
    from automation_pipeline.bootstrap import Services


class ServicesResource(dg.ConfigurableResource):
    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator[Self]:
        """Every process of a run, whatever its executor, makes the resource before its steps: all
        that they do is correlated. Sensors have no run."""
        if context.run is None:
            yield self
            return
        with correlated(correlation_of(context.run)):
            yield self

    def get(self) -> "Services":
        from automation_pipeline.bootstrap import services  # noqa: PLC0415  with what needs it, and not before

        return services()


# What Dagster makes of a Python type in a run config also accepts `{env: NAME}`, and what it makes
# of these does not.
PLAIN: dict[object, object] = {kind: dg.Field(kind).config_type for kind in (str, int, bool)}


class StrictConfig(dg.Config):  # noqa: TID251  the one place
    """Refuses unknown fields and `{env: NAME}` as a value, with which anyone who may launch a run
    could read the secrets of the worker."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Dagster derives the schema of a run config from these annotations; pydantic does not look
        at them again."""
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            field.annotation = cast("type", plain(field.annotation))


def plain(annotation: object) -> object:
    """The annotation for Dagster, no part of which takes its value from an environment variable."""
    origin = get_origin(annotation)
    if origin is None or origin is Literal:
        return PLAIN.get(annotation, annotation)
    parts = tuple(plain(part) for part in get_args(annotation))
    return Union[parts] if origin is UnionType else cast("Any", origin)[parts]  # noqa: UP007  found at run time


def every(seconds: int) -> int:
    """A sensor's interval, unless `AUTOMATION_SENSOR_MAX_INTERVAL_SECONDS` asks for a shorter
    one."""
    return min(seconds, load_settings().automation_sensor_max_interval_seconds)


_DIGITS = re.compile(ID_DIGITS)


def check_ids(**given: int | None) -> None:
    """InvalidInputError naming every field that cannot be an id; None is a missing one."""
    faults = tuple(
        (name, f"must be from 1 to {LARGEST_ID}")
        for name, one in given.items()
        if one is not None and not 1 <= one <= LARGEST_ID
    )
    if faults:
        raise InvalidInputError("Invalid config", faults)


def id_in(given: object) -> int | None:
    """None if it cannot be an id: users may write anything into configs and tags."""
    text = str(given)
    return int(text) if _DIGITS.fullmatch(text) and int(text) <= LARGEST_ID else None


class SelectionConfig(StrictConfig):
    """Dagster has no optional enum: the description of `dateRange` lists its values."""

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
        default=None,
        description="The last day of `custom`, as the first; without it, the first day alone.",
    )
    groupes: list[str] = Field(
        default=[], description="Only fiches of these groupes; empty takes all."
    )
    only_with_recordings: bool = Field(
        default=False, description="Leave out fiches without a recording."
    )
    only_unaudited: bool = Field(default=False, description="Leave out fiches that have an audit.")
    use_rlm: bool = Field(
        default=False, description="The model reads the calls with tools instead of in the prompt."
    )
    max_fiches: int | None = Field(
        default=None, description="At most so many fiches; without it, all."
    )
    max_recordings_per_fiche: int | None = Field(
        default=None,
        description="Leave out fiches with more recordings; without it, AUTOMATION_MAX_RECORDINGS_PER_FICHE.",
    )
    fiche_ids: list[str] = Field(
        default=[],
        description='The fiches of `manual`, each quoted; one text may hold several: "1900417, 1900418".',
    )

    def said(self) -> dict[str, object]:
        """What was given, as the JSON of a schedule has it: Dagster fills in the defaults of what
        was not."""
        return self.model_dump(by_alias=True, exclude_defaults=True)


STEP_RETRIES = 3
STEP_RETRY_SECONDS = 5.0

# Of assets, whose process may die: the runs of jobs are requested again instead. Steps inside the
# run's own process must have none: a retry policy also catches the interrupt by which a run is
# terminated, and goes on.
CRASH_RETRIES = (
    dg.RetryPolicy(max_retries=STEP_RETRIES, delay=1)
    if load_settings().automation_executor in {"multiprocess", "k8s"}
    else None
)


@contextmanager
def verdicts() -> Generator[None]:
    try:
        yield
    except TransientError as error:
        wait = error.retry_after_seconds or STEP_RETRY_SECONDS
        raise dg.RetryRequested(max_retries=STEP_RETRIES, seconds_to_wait=wait) from error
    except PermanentError as error:
        raise dg.Failure(sentence_of(error), allow_retries=False) from None


@contextmanager
def others_at_it(context: dg.OpExecutionContext, busy: type[TransientError]) -> Generator[None]:
    """Waits for the hold of a killed worker to end; beside a live one there is nothing to do."""
    try:
        yield
    except busy as error:
        if context.retry_number < STEP_RETRIES:
            raise
        context.log.info(f"{error} There is nothing left for a second worker.")


def words_of(error: BaseException | None) -> str:
    """The message of a step's exception. A request for a retry has none of its own: its cause has
    it."""
    if isinstance(error, dg.Failure) and error.description:
        return error.description
    if isinstance(error, dg.RetryRequested) and error.__cause__ is not None:
        return words_of(error.__cause__)
    if isinstance(error, AutomationError):
        return sentence_of(error)
    return f"{type(error).__name__}: {error}" if error else "The step failed"
