"""An audit configuration: its steps, its JSON document, its changes, and how the API shows it."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, ValidationError

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import (
    Id,
    Instant,
    JsonModel,
    as_document,
    field_errors,
    parse,
)


class Severity(StrEnum):
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, kw_only=True)
class AuditStep:
    """One step, at its `position` from 1. Not being CONFORME on a critical one rejects the whole
    audit."""

    position: int
    name: str
    prompt: str
    control_points: tuple[str, ...]
    severity: Severity
    description: str | None = None
    keywords: tuple[str, ...] = ()
    is_critical: bool = False
    weight: int = 5
    chronological_important: bool = False
    verify_product_info: bool = False


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """`steps` in the order of their positions, which are 1 to n without gaps."""

    name: str
    steps: tuple[AuditStep, ...]
    description: str | None = None
    system_prompt: str | None = None
    is_active: bool = True
    run_automatically: bool = False
    created_by: str | None = None

    @property
    def total_weight(self) -> int:
        return sum(step.weight for step in self.steps)


_Entry = TypeVar("_Entry")


def _distinct(points: tuple[str, ...]) -> tuple[str, ...]:
    if len({" ".join(point.split()) for point in points}) < len(points):
        raise ValueError("must be unique within the step")
    return points


def _filled(message: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in message if word))


def _none_is_empty(given: object) -> object:
    return () if given is None else given


def _blank_is_none(text: str | None) -> str | None:
    return text or None


def not_empty_list(entries: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
    if not entries:
        raise ValueError("must not be empty")
    return entries


def _at_most(longest: int) -> AfterValidator:
    def stripped(text: str) -> str:
        bare = text.strip()
        if len(bare) > longest:
            raise ValueError(f"must have at most {longest} characters")
        return bare

    return AfterValidator(stripped)


def _required_text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


_RequiredText = AfterValidator(_required_text)
_BlankIsNone = AfterValidator(_blank_is_none)

Name = Annotated[str, _at_most(200), _RequiredText]
Prompt = Annotated[str, _at_most(20_000), _RequiredText]
ControlPointText = Annotated[str, _at_most(1_000), _RequiredText]
Keyword = Annotated[str, _at_most(200)]
Description = Annotated[Annotated[str, _at_most(5_000)] | None, _BlankIsNone]
SystemPrompt = Annotated[Annotated[str, _at_most(50_000)] | None, _BlankIsNone]
Author = Annotated[Annotated[str, _at_most(200)] | None, _BlankIsNone]
Points = Annotated[
    tuple[ControlPointText, ...],
    Field(max_length=100),
    AfterValidator(not_empty_list),
    AfterValidator(_distinct),
]
Keywords = Annotated[
    tuple[Keyword, ...],
    Field(max_length=200),
    AfterValidator(_filled),
    BeforeValidator(_none_is_empty),
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

    def step(self) -> AuditStep:
        return AuditStep(
            position=self.position,
            name=self.name,
            description=self.description,
            prompt=self.prompt,
            control_points=self.control_points,
            keywords=self.keywords,
            severity=self.severity_level,
            is_critical=self.is_critical,
            weight=self.weight,
            chronological_important=self.chronological_important,
            verify_product_info=self.verify_product_info,
        )


class NewStepDocument(ConfigStepDocument):
    """Without a position it goes behind the others."""

    position: StrictInt | None = None  # type: ignore[assignment]  as it is sent; no step is made of this


def parse_step(given: Mapping[str, object], complaint: str) -> AuditStep:
    """InvalidInputError names every field at fault. Whether the position is free is not looked
    at."""
    return parse(ConfigStepDocument, without_id(given), complaint).step()


def config_step_document(step: AuditStep) -> dict[str, object]:
    """What parses to an equal step."""
    return {
        "position": step.position,
        "name": step.name,
        "description": step.description,
        "prompt": step.prompt,
        "controlPoints": list(step.control_points),
        "keywords": list(step.keywords),
        "severityLevel": step.severity.value,
        "isCritical": step.is_critical,
        "weight": step.weight,
        "chronologicalImportant": step.chronological_important,
        "verifyProductInfo": step.verify_product_info,
    }


def without_id(step: Mapping[str, object]) -> dict[str, object]:
    return {field: value for field, value in step.items() if field != "id"}


FieldError = tuple[str, str]

MUST_BE_UNIQUE = "Step positions must be unique"


def position_faults(steps: object) -> tuple[FieldError, ...]:
    """Complaints about the field `steps`; none where a position cannot be read, which is complained
    about elsewhere."""
    positions = _positions_of_steps(steps)
    count = len(positions)
    if positions and sorted(positions) == list(range(count)):
        return (
            ("steps", f"Step positions count from 1, and these count from 0: give 1 to {count}"),
        )
    doubled = sorted(position for position, times in Counter(positions).items() if times > 1)
    missing = [position for position in range(1, count + 1) if position not in set(positions)]
    faults: list[FieldError] = []
    if doubled:
        faults.append(
            ("steps", f"{MUST_BE_UNIQUE}: {_joined_positions(doubled)} given more than once")
        )
    if missing:
        faults.append(
            (
                "steps",
                f"Step positions must be 1 to {count} without gaps: {_joined_positions(missing)} missing",
            )
        )
    return tuple(faults)


def free_positions(taken: Collection[int]) -> list[int]:
    """Where one more step leaves no gap: behind the last, or in a gap that there is."""
    return [position for position in range(1, len(taken) + 2) if position not in taken]


def require_free_position(position: int, taken: Collection[int]) -> None:
    free = free_positions(taken)
    if position not in free:
        why = "is already taken" if position in taken else "would leave a gap"
        sentence = f"Position {position} {why}. Available positions: {_joined_positions(free)}"
        raise InvalidInputError(sentence, (("position", sentence),))


def _positions_of_steps(steps: object) -> list[int]:
    """None at all unless every step has one that is an integer."""
    if not isinstance(steps, list):
        return []
    given = [
        cast("dict[str, object]", step).get("position") if isinstance(step, dict) else None
        for step in cast("list[object]", steps)
    ]
    whole = [position for position in given if type(position) is int]
    return whole if len(whole) == len(given) else []


def _joined_positions(positions: Iterable[int]) -> str:
    return ", ".join(str(position) for position in positions)


INVALID_CONFIG = "Invalid create audit config input"
MAX_STEPS = 100

# What files of other systems have, and our own answers beside the configuration: nothing here reads
# it.
_EXTRAS = {
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


class ConfigDocument(JsonModel):
    name: Name
    description: Description = None
    system_prompt: SystemPrompt = None
    is_active: StrictBool = True
    run_automatically: StrictBool = False
    created_by: Author = None
    steps: Annotated[
        tuple[ConfigStepDocument, ...], Field(max_length=MAX_STEPS), AfterValidator(not_empty_list)
    ]

    def config(self) -> AuditConfig:
        return AuditConfig(
            name=self.name,
            description=self.description,
            system_prompt=self.system_prompt,
            is_active=self.is_active,
            run_automatically=self.run_automatically,
            created_by=self.created_by,
            steps=tuple(
                sorted((step.step() for step in self.steps), key=lambda step: step.position)
            ),
        )


def parse_config(given: Mapping[str, object], complaint: str = INVALID_CONFIG) -> AuditConfig:
    """The configuration, its steps in order; or InvalidInputError that names every field at
    fault."""
    values, steps_name = _without_extras(given)
    faults = position_faults(values.get("steps"))
    if {"steps", "auditSteps"} <= set(given):
        faults = (("auditSteps", "is another name of steps: give one of them"), *faults)
    try:
        document = ConfigDocument.model_validate(values)
    except ValidationError as error:
        faults = (*field_errors(error), *faults)
    else:
        if not faults:
            return document.config()
        complaint = MUST_BE_UNIQUE if faults[0][1].startswith(MUST_BE_UNIQUE) else complaint
    raise InvalidInputError(
        complaint, tuple((_named(field, steps_name), why) for field, why in faults)
    )


def config_faults(given: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """By field; none when it parses."""
    try:
        parse_config(given)
    except InvalidInputError as error:
        return error.fields or (("", str(error)),)
    return ()


def config_document(config: AuditConfig) -> dict[str, object]:
    """What parses to an equal configuration."""
    return {
        "name": config.name,
        "description": config.description,
        "systemPrompt": config.system_prompt,
        "isActive": config.is_active,
        "runAutomatically": config.run_automatically,
        "createdBy": config.created_by,
        "steps": [config_step_document(step) for step in config.steps],
    }


def fingerprint(config: AuditConfig) -> str:
    """The same for two configurations that judge alike, in use or not."""
    judging = {name: config_document(config)[name] for name in ("name", "systemPrompt", "steps")}
    canonical = json.dumps(judging, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _without_extras(given: Mapping[str, object]) -> tuple[dict[str, object], str]:
    """What is read, and the name that the steps have in what was given."""
    values = {field: value for field, value in given.items() if field not in _EXTRAS}
    steps_name = "auditSteps" if "auditSteps" in values and "steps" not in values else "steps"
    other_name = values.pop("auditSteps", None)
    if steps_name == "auditSteps":
        values["steps"] = other_name
    steps = values.get("steps")
    if isinstance(steps, list | tuple):
        values["steps"] = [
            without_id(cast("Mapping[str, object]", step)) if isinstance(step, dict) else step
            for step in cast("Sequence[object]", steps)
        ]
    return values, steps_name


def _named(field: str, steps_name: str) -> str:
    first, dot, rest = field.partition(".")
    return f"{steps_name}{dot}{rest}" if first == "steps" else field


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
    """Of the audits that are not deleted, all versions of them; `all_audits` counts the deleted
    ones too. Averages and the rate, in percent, are of completed ones; None without any."""

    all_audits: int = 0
    total_audits: int = 0
    completed_audits: int = 0
    failed_audits: int = 0
    average_score: float | None = None
    average_duration_ms: int | None = None
    last_used_at: Instant | None = None
    compliance_rate: float | None = None


class ConfigShown(JsonModel):
    """`steps` and `stats` only where they were asked for."""

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
        """Without what was not asked for."""
        left_out = {name for name in ("steps", "stats") if getattr(self, name) is None}
        return {name: value for name, value in as_document(self).items() if name not in left_out}


def step_shown(step_id: int, step: AuditStep) -> ConfigStepShown:
    values = {
        "severity_level" if name == "severity" else name: value
        for name, value in vars(step).items()
    }
    return ConfigStepShown.model_validate({"id": step_id, **values})


def steps_shown(step_ids: Iterable[int], config: AuditConfig) -> tuple[ConfigStepShown, ...]:
    return tuple(
        step_shown(step_id, step) for step_id, step in zip(step_ids, config.steps, strict=True)
    )


INVALID_UPDATE = "Invalid update audit config input"
INVALID_STEP = "Invalid audit step input"


def changed_config(stored: AuditConfig, given: Mapping[str, object]) -> AuditConfig:
    """Steps that are given are all that there will be."""
    before = config_document(stored)
    if "auditSteps" in given:
        del before["steps"]
    return parse_config({**before, **given}, INVALID_UPDATE)


def new_step(config: AuditConfig, given: Mapping[str, object]) -> AuditStep:
    """Without a position it goes behind the others."""
    taken = _positions_of_config(config)
    if len(taken) >= MAX_STEPS:
        raise InvalidInputError(f"An audit config has at most {MAX_STEPS} steps")
    behind = {} if given.get("position") is not None else {"position": free_positions(taken)[0]}
    step = parse_step({**given, **behind}, INVALID_STEP)
    require_free_position(step.position, taken)
    return step


def changed_step(config: AuditConfig, step: AuditStep, given: Mapping[str, object]) -> AuditStep:
    """One that goes behind the others leaves its place to those that it stood before."""
    changed = parse_step({**config_step_document(step), **given}, INVALID_STEP)
    if changed.position != step.position:
        require_free_position(changed.position, _positions_of_config(config))
    return changed


def _positions_of_config(config: AuditConfig) -> set[int]:
    return {step.position for step in config.steps}


def positions_in_order(step_ids: Sequence[int], given: Sequence[int]) -> dict[int, int]:
    """The position, from 1, of every step in the order given. InvalidInputError unless each step is
    named once."""
    known, named = set(step_ids), set(given)
    faults = {
        "missing": [step for step in step_ids if step not in named],
        "not steps of this configuration": dict.fromkeys(
            step for step in given if step not in known
        ),
        "given more than once": [step for step, times in Counter(given).items() if times > 1],
    }
    fields = tuple(("stepIds", f"{why}: {_joined_ids(ids)}") for why, ids in faults.items() if ids)
    if fields:
        raise InvalidInputError("The new order must name every step once", fields)
    return {step: position for position, step in enumerate(given, start=1)}


def _joined_ids(ids: Iterable[int]) -> str:
    return ", ".join(str(step) for step in ids)
