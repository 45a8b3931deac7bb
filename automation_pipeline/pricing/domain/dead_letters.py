"""Failed targets are the dead letters: what they lack, what to do about them, and which may be tried again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.json_model import Instant, JsonModel
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.pricing.domain.failures import FailureKind
from automation_pipeline.pricing.domain.states import RULE_RUN, RunState

KEPT_FOR = timedelta(days=90)
STALE_AFTER = timedelta(hours=24)

# Not a failure of the shop or the rule: trying again is all that is needed.
_INTERRUPTED = frozenset({FailureKind.TIMEOUT, FailureKind.CANCELLED})

_AGAIN = "{count} failed on the way to the shop or in it: retry all"
_RECONNECT = "{count} were refused because the shop no longer knows us: reconnect the shop, then retry with force"
_ADVICE: Mapping[FailureKind, str] = {
    FailureKind.RATE_LIMIT: "{count} met the shop's rate limit: retry later, or lower the concurrency",
    FailureKind.AUTHENTICATION: _RECONNECT,
    FailureKind.AUTHORIZATION: "{count} are not permitted: reconnect the shop with the right to write products",
    FailureKind.SHOP_CLOSED: "{count} met a closed shop: have the shop opened again, then retry with force",
    FailureKind.NOT_FOUND: "{count} no longer exist in the shop: re-sync the catalogue",
    FailureKind.VALIDATION: "{count} were refused as invalid: fix the rule or its floor, then preview again",
    FailureKind.NETWORK: _AGAIN,
    FailureKind.SERVER: _AGAIN,
    FailureKind.TIMEOUT: "{count} took too long: retry all",
    FailureKind.CONFLICT: "{count} had another price than was previewed: preview again",
    FailureKind.CANCELLED: "{count} were cancelled: retry them if they are still wanted",
    FailureKind.UNKNOWN: "{count} failed for an unknown reason: look at their errors",
}


class DeadLetter(JsonModel):
    target_id: str
    run_id: str
    product_id: str
    variant_id: str | None
    failed_at: Instant
    error_type: FailureKind
    error: str
    retryable: bool


@dataclass(frozen=True)
class Tally:
    """How many dead letters of a kind there are, how many of them are worth another try, and how many lie for long."""

    kind: FailureKind
    count: int
    retryable: int
    stale: int


class DeadLetterReport(JsonModel):
    """`by_error_type` is ordered by how many; the entries by when they failed, the first ones where there are many."""

    project_id: str
    total_failed: int
    retryable: int
    stale: int
    by_error_type: dict[FailureKind, int]
    recommendations: tuple[str, ...]
    entries: tuple[DeadLetter, ...]


def drained(project_id: str, tallies: Iterable[Tally], entries: Sequence[DeadLetter]) -> DeadLetterReport:
    """A report of the dead letters, which stay where they are. All are counted, even where they are too many to be
    listed."""
    known = sorted(tallies, key=lambda tally: (-tally.count, tally.kind))
    return DeadLetterReport(
        project_id=project_id,
        total_failed=sum(tally.count for tally in known),
        retryable=sum(tally.retryable for tally in known),
        stale=sum(tally.stale for tally in known),
        by_error_type={tally.kind: tally.count for tally in known},
        recommendations=tuple(recommendation(tally.kind, tally.count) for tally in known),
        entries=tuple(entries),
    )


def recommendation(kind: FailureKind, count: int) -> str:
    return _ADVICE[kind].format(count=f"{count} {'variant' if count == 1 else 'variants'}")


def worth_retrying(kind: FailureKind, *, retryable: bool) -> bool:
    """What a dead letter says of itself: whether trying it again by hand can help as things are."""
    return retryable or kind in _INTERRUPTED


def targets_to_retry(
    run: RunState, failed: Sequence[DeadLetter], chosen: Iterable[str] | None = None, *, force: bool = False
) -> list[str]:
    """All failed targets that are worth it, or those chosen; with `force` the hopeless too, whose cause was removed."""
    if not RULE_RUN.can_move(run, RunState.APPLYING) or run is RunState.QUEUED:
        raise IllegalMoveError(RULE_RUN.name, run, RunState.APPLYING, f"A run that is {run} cannot be retried.")
    letters = {letter.target_id: letter for letter in failed}
    wanted = list(letters) if chosen is None else list(dict.fromkeys(chosen))
    strangers = [target_id for target_id in wanted if target_id not in letters]
    hopeless = [one for one in wanted if one in letters and not force and not letters[one].retryable]
    faults = [("targetIds", f"{target_id} is not a failed target of the run") for target_id in strangers]
    if chosen is not None:
        faults += [("targetIds", f"{one} would fail again: fix its cause, then use force") for one in hopeless]
    if faults:
        raise InvalidInputError("These targets cannot be retried.", tuple(faults))
    left = [target_id for target_id in wanted if target_id not in hopeless]
    if not left:
        raise ConflictError("No failed target of the run is worth another attempt: fix the cause, then use force.")
    return left
