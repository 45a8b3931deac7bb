"""An audit configuration: its steps, its JSON document, its changes, and how the API shows it."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, ValidationError
from pydantic.alias_generators import to_camel

from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import (
    Id,
    Instant,
    JsonModel,
    as_document,
    field_errors,
    parse,
)

INVALID_CONFIG = "Invalid create audit config input"
INVALID_UPDATE = "Invalid update audit config input"
INVALID_STEP = "Invalid audit step input"
MUST_BE_UNIQUE = "Step positions must be unique"
MAX_STEPS = 100

FieldError = tuple[str, str]


class Severity(StrEnum):
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, kw_only=True)
class AuditStep:
    """A step at its `position`, from 1. Unless a critical step is CONFORME, the audit is rejected."""

    position: int
    name: str
    description: str | None = None
    prompt: str
    control_points: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    severity_level: Severity
    is_critical: bool = False
    weight: int = 5
    chronological_important: bool = False
    verify_product_info: bool = False


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """`steps` are in the order of their positions, which are 1 to n without gaps."""

    name: str
    description: str | None = None
    system_prompt: str | None = None
    is_active: bool = True
    run_automatically: bool = False
    created_by: str | None = None
    steps: tuple[AuditStep, ...]

    @property
    def total_weight(self) -> int:
        return sum(step.weight for step in self.steps)


@dataclass(frozen=True)
class ConfigStep:
    id: int
    config_id: int
    step: AuditStep


@dataclass(frozen=True, kw_only=True)
class StoredConfig:
    id: int
    config: AuditConfig
    step_ids: tuple[int, ...]
    created_at: datetime
    updated_at: datetime

    @property
    def steps(self) -> Mapping[int, AuditStep]:
        return dict(zip(self.step_ids, self.config.steps, strict=True))

    def step(self, step_id: int) -> ConfigStep:
        """Raises NotFoundError for a step of another configuration."""
        if step_id not in self.step_ids:
            raise step_not_found(step_id)
        return ConfigStep(step_id, self.id, self.steps[step_id])


def config_not_found(config_id: int) -> NotFoundError:
    return NotFoundError(f"Audit config with ID '{config_id}' not found")


def step_not_found(step_id: int) -> NotFoundError:
    return NotFoundError(f"Audit step with ID '{step_id}' not found")


def _not_empty(value: object) -> object:
    if not value:
        raise ValueError("must not be empty")
    return value


def _unique_points(points: tuple[str, ...]) -> tuple[str, ...]:
    if len({" ".join(point.split()) for point in points}) < len(points):
        raise ValueError("must be unique within the step")
    return points


def _at_most(longest: int) -> AfterValidator:
    def stripped(text: str) -> str:
        bare = text.strip()
        if len(bare) > longest:
            raise ValueError(f"must have at most {longest} characters")
        return bare

    return AfterValidator(stripped)


_NotEmpty = AfterValidator(_not_empty)
_BlankIsNone = AfterValidator(lambda text: text or None)

Name = Annotated[str, _at_most(200), _NotEmpty]
Prompt = Annotated[str, _at_most(20_000), _NotEmpty]
ControlPointText = Annotated[str, _at_most(1_000), _NotEmpty]
Description = Annotated[Annotated[str, _at_most(5_000)] | None, _BlankIsNone]
SystemPrompt = Annotated[Annotated[str, _at_most(50_000)] | None, _BlankIsNone]
Author = Annotated[Annotated[str, _at_most(200)] | None, _BlankIsNone]
Points = Annotated[
    tuple[ControlPointText, ...],
    Field(max_length=100),
    _NotEmpty,
    AfterValidator(_unique_points),
]
Keywords = Annotated[
    tuple[Annotated[str, _at_most(200)], ...],
    Field(max_length=200),
    AfterValidator(lambda words: tuple(dict.fromkeys(word for word in words if word))),
    BeforeValidator(lambda given: () if given is None else given),
]


class ConfigStepDocument(JsonModel):
    position: StrictInt
    name: Name
    description: Description = None
    prompt: Prompt
    control_points: Points
    keywords: Keywords = ()
    severity_level: Severity
    is_critical: StrictBool = False
    weight: Annotated[StrictInt, Field(ge=1, le=10)] = 5
    chronological_important: StrictBool = False
    verify_product_info: StrictBool = False


class NewStepDocument(ConfigStepDocument):
    """Without a position, the step goes to the end."""

    position: StrictInt | None = None  # type: ignore[assignment]  the schema of the body only


class ConfigDocument(JsonModel):
    name: Name
    description: Description = None
    system_prompt: SystemPrompt = None
    is_active: StrictBool = True
    run_automatically: StrictBool = False
    created_by: Author = None
    steps: Annotated[tuple[ConfigStepDocument, ...], Field(max_length=MAX_STEPS), _NotEmpty]


# Fields of responses, and of files of other systems, that are not part of a configuration.
_IGNORED = {
    "version",
    "totalSteps",
    "verificationNote",
    "verificationConfiguration",
    "id",
    "createdAt",
    "updatedAt",
    "stepsCount",
    "totalWeight",
    "stats",
}


def parse_config(given: Mapping[str, object], complaint: str = INVALID_CONFIG) -> AuditConfig:
    """Return the configuration with its steps in order. Raises InvalidInputError with one error per invalid
    field."""
    values = {field: value for field, value in given.items() if field not in _IGNORED}
    steps_name = "auditSteps" if "auditSteps" in values and "steps" not in values else "steps"
    other_name = values.pop("auditSteps", None)
    steps = other_name if steps_name == "auditSteps" else values.get("steps")
    if isinstance(steps, list | tuple):
        steps = [
            _without_id(cast("Mapping[str, object]", step)) if isinstance(step, dict) else step
            for step in cast("Sequence[object]", steps)
        ]
    if steps_name in given:
        values["steps"] = steps
    faults = position_faults(steps)
    if {"steps", "auditSteps"} <= set(given):
        faults = (("auditSteps", "is another name of steps: give only one of them"), *faults)
    try:
        document = ConfigDocument.model_validate(values)
    except ValidationError as error:
        faults = (*field_errors(error), *faults)
    else:
        if not faults:
            fields: dict[str, Any] = vars(document) | {
                "steps": tuple(
                    AuditStep(**vars(step))
                    for step in sorted(document.steps, key=lambda step: step.position)
                )
            }
            return AuditConfig(**fields)
        complaint = MUST_BE_UNIQUE if faults[0][1].startswith(MUST_BE_UNIQUE) else complaint
    raise InvalidInputError(
        complaint,
        tuple(
            (f"{steps_name if first == 'steps' else first}{dot}{rest}", why)
            for first, dot, rest, why in ((*field.partition("."), why) for field, why in faults)
        ),
    )


def _without_id(step: Mapping[str, object]) -> dict[str, object]:
    return {field: value for field, value in step.items() if field != "id"}


def position_faults(steps: object) -> tuple[FieldError, ...]:
    """Return the errors of the positions. A position that is not an integer is an error of another field, so
    that nothing is checked here."""
    if not isinstance(steps, list):
        return ()
    given = [
        cast("dict[str, object]", step).get("position") if isinstance(step, dict) else None
        for step in cast("list[object]", steps)
    ]
    positions = [position for position in given if type(position) is int]
    count = len(given)
    if not given or len(positions) < count:
        return ()
    if sorted(positions) == list(range(count)):
        return (
            ("steps", f"Step positions count from 1, and these count from 0: give 1 to {count}"),
        )
    doubled = sorted(position for position, times in Counter(positions).items() if times > 1)
    missing = [position for position in range(1, count + 1) if position not in positions]
    faults = (
        (doubled, f"{MUST_BE_UNIQUE}: {_joined(doubled)} given more than once"),
        (missing, f"Step positions must be 1 to {count} without gaps: {_joined(missing)} missing"),
    )
    return tuple(("steps", sentence) for numbers, sentence in faults if numbers)


def _joined(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def config_faults(given: Mapping[str, object]) -> tuple[FieldError, ...]:
    try:
        parse_config(given)
    except InvalidInputError as error:
        return error.fields or (("", str(error)),)
    return ()


def config_document(config: AuditConfig) -> dict[str, object]:
    """The document that `parse_config` turns into an equal configuration."""
    return {
        **{to_camel(name): value for name, value in vars(config).items()},
        "steps": [step_document(step) for step in config.steps],
    }


def step_document(step: AuditStep) -> dict[str, object]:
    values = {to_camel(name): value for name, value in vars(step).items()}
    return {
        **values,
        "controlPoints": list(step.control_points),
        "keywords": list(step.keywords),
        "severityLevel": step.severity_level.value,
    }


def fingerprint(config: AuditConfig) -> str:
    """Equal for configurations that judge in the same way, whether they are active or not."""
    return hashlib.sha256(
        json.dumps(
            {name: config_document(config)[name] for name in ("name", "systemPrompt", "steps")},
            sort_keys=True,
            separators=(",", ":"),
        ).encode()
    ).hexdigest()


def changed_config(stored: AuditConfig, given: Mapping[str, object]) -> AuditConfig:
    """Change the given fields; null clears. Given steps replace all steps."""
    before = config_document(stored)
    if "auditSteps" in given:
        del before["steps"]
    return parse_config({**before, **given}, INVALID_UPDATE)


def new_step(config: AuditConfig, given: Mapping[str, object]) -> AuditStep:
    """Without a position, the step goes to the end."""
    taken = {step.position for step in config.steps}
    if len(taken) >= MAX_STEPS:
        raise InvalidInputError(f"An audit config has at most {MAX_STEPS} steps")
    at_end = {} if given.get("position") is not None else {"position": free_positions(taken)[0]}
    step = _parse_step({**given, **at_end})
    require_free_position(step.position, taken)
    return step


def changed_step(config: AuditConfig, step: AuditStep, given: Mapping[str, object]) -> AuditStep:
    """Change the given fields; null clears. The only free position is the last one."""
    changed = _parse_step({**step_document(step), **given})
    if changed.position != step.position:
        require_free_position(changed.position, {one.position for one in config.steps})
    return changed


def _parse_step(given: Mapping[str, object]) -> AuditStep:
    return AuditStep(**vars(parse(ConfigStepDocument, _without_id(given), INVALID_STEP)))


def free_positions(taken: Collection[int]) -> list[int]:
    """The positions for another step: after the last one, or in an existing gap."""
    return [position for position in range(1, len(taken) + 2) if position not in taken]


def require_free_position(position: int, taken: Collection[int]) -> None:
    free = free_positions(taken)
    if position not in free:
        why = "is already taken" if position in taken else "would leave a gap"
        sentence = f"Position {position} {why}. Available positions: {_joined(free)}"
        raise InvalidInputError(sentence, (("position", sentence),))


def check_order(step_ids: Sequence[int], given: Sequence[int]) -> None:
    faults = {
        "missing": [step for step in step_ids if step not in given],
        "not steps of this configuration": dict.fromkeys(
            step for step in given if step not in step_ids
        ),
        "given more than once": [step for step, times in Counter(given).items() if times > 1],
    }
    fields = tuple(("stepIds", f"{why}: {_joined(ids)}") for why, ids in faults.items() if ids)
    if fields:
        raise InvalidInputError("The new order must name every step once", fields)


class ConfigStepShown(JsonModel):
    id: Id
    position: int
    name: str
    description: str | None
    prompt: str
    control_points: tuple[str, ...]
    keywords: tuple[str, ...]
    severity_level: Severity
    is_critical: bool
    weight: int
    chronological_important: bool
    verify_product_info: bool


class ConfigStats(JsonModel):
    """Statistics of the audits that are not deleted, all versions of them; `all_audits` includes
    the deleted ones. Averages and the rate, in percent, count completed audits; None without any."""

    all_audits: int = 0
    total_audits: int = 0
    completed_audits: int = 0
    failed_audits: int = 0
    average_score: float | None = None
    average_duration_ms: int | None = None
    last_used_at: Instant | None = None
    compliance_rate: float | None = None


class ConfigShown(JsonModel):
    """`steps` and `stats` are present only on request."""

    id: Id
    name: str
    description: str | None
    system_prompt: str | None
    is_active: bool
    run_automatically: bool
    created_by: str | None
    created_at: Instant
    updated_at: Instant
    steps_count: int
    total_weight: int
    steps: tuple[ConfigStepShown, ...] | None = None
    stats: ConfigStats | None = None

    def document(self) -> dict[str, object]:
        """The document without the parts that the request did not include."""
        return {
            name: value
            for name, value in as_document(self).items()
            if name not in {"steps", "stats"} or value is not None
        }


def config_shown(
    stored: StoredConfig, *, steps: bool = False, stats: ConfigStats | None = None
) -> ConfigShown:
    config = stored.config
    return ConfigShown(
        **{name: value for name, value in vars(config).items() if name != "steps"},
        id=stored.id,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
        steps_count=len(config.steps),
        total_weight=config.total_weight,
        steps=steps_shown(stored) if steps else None,
        stats=stats,
    )


def step_shown(stored: ConfigStep) -> ConfigStepShown:
    return ConfigStepShown(id=stored.id, **vars(stored.step))


def steps_shown(stored: StoredConfig) -> tuple[ConfigStepShown, ...]:
    return tuple(step_shown(stored.step(step_id)) for step_id in stored.step_ids)
