"""Decisions about what runs leave behind: dead letters, reconciliation, alerts, invariants,
days."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.pricing.models.history import (
    FIRST_CHECKS,
    AlertCandidate,
    DayRuns,
    DeadLetter,
    DeadLetterReport,
    DeadLetterTally,
    LastAlert,
    Mismatch,
    MismatchSeverity,
    PriceReading,
    PricingAlertName,
    ProjectHealth,
    ReconciliationReport,
    Unverified,
)
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    ENDED_RUN_STATES,
    OPEN_TARGET_STATES,
    RULE_RUN,
    PricingRunState,
    TargetState,
    success_rate,
)
from automation_pipeline.pricing.models.shop import FailureKind, Price
from automation_pipeline.pricing.rules.runs import MAX_RETRIES

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


def dead_letter_report(
    project_id: str, tallies: Iterable[DeadLetterTally], entries: Sequence[DeadLetter]
) -> DeadLetterReport:
    """A report of the dead letters, which stay where they are. All are counted, even where they are
    too many to be listed."""
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
    run: PricingRunState,
    failed: Sequence[DeadLetter],
    chosen: Iterable[str] | None = None,
    *,
    force: bool = False,
) -> list[str]:
    """All failed targets that are worth it, or those chosen; with `force` the hopeless too, whose
    cause was removed."""
    if not RULE_RUN.can_move(run, PricingRunState.APPLYING) or run is PricingRunState.QUEUED:
        raise IllegalMoveError(
            RULE_RUN.name, run, PricingRunState.APPLYING, f"A run that is {run} cannot be retried."
        )
    letters = {letter.target_id: letter for letter in failed}
    wanted = list(letters) if chosen is None else list(dict.fromkeys(chosen))
    strangers = [target_id for target_id in wanted if target_id not in letters]
    hopeless = [
        one for one in wanted if one in letters and not force and not letters[one].retryable
    ]
    faults = [
        ("targetIds", f"{target_id} is not a failed target of the run") for target_id in strangers
    ]
    if chosen is not None:
        faults += [
            ("targetIds", f"{one} would fail again: fix its cause, then use force")
            for one in hopeless
        ]
    if faults:
        raise InvalidInputError("These targets cannot be retried.", tuple(faults))
    left = [target_id for target_id in wanted if target_id not in hopeless]
    if not left:
        raise ConflictError(
            "No failed target of the run is worth another attempt: fix the cause, then use force."
        )
    return left


WATCHED_FOR = timedelta(days=30)

_LEAST = 1
_CRITICAL_SHARE = Decimal("0.01")


def reconciliation_report(
    run_id: str, readings: Sequence[PriceReading], now: datetime
) -> ReconciliationReport:
    details = [found for reading in readings if (found := mismatch_of(reading)) is not None]
    unread = [
        Unverified(target_id=one.target_id, reason=one.reason)
        for one in readings
        if one.actual is None
    ]
    return ReconciliationReport(
        run_id=run_id,
        total_checked=len(readings) - len(unread),
        mismatches=len(details),
        timestamp=now,
        details=tuple(details),
        unverified=tuple(unread),
    )


def mismatch_of(reading: PriceReading) -> Mismatch | None:
    """Any difference in price or currency is one, however small."""
    expected, actual = reading.expected, reading.actual
    if actual is None or expected.stands_as(actual, with_compare_at=False):
        return None
    comparable = expected.currency == actual.currency
    difference = actual.unit_amount - expected.unit_amount if comparable else None
    share = _share(difference, expected.unit_amount)
    return Mismatch(
        target_id=reading.target_id,
        sku_id=reading.sku_id,
        expected_price=expected.unit_amount,
        actual_price=actual.unit_amount,
        currency=expected.currency,
        actual_currency=actual.currency,
        difference=difference,
        percentage_diff=None if share is None else round(float(share), 4),
        severity=mismatch_severity(expected, actual),
    )


def mismatch_severity(expected: Price, actual: Price) -> MismatchSeverity:
    """One minor unit is told and no more: a shop may round. Another currency is always critical."""
    if expected.currency != actual.currency:
        return MismatchSeverity.CRITICAL
    difference = abs(actual.unit_amount - expected.unit_amount)
    if difference <= _LEAST:
        return MismatchSeverity.INFO
    return (
        MismatchSeverity.CRITICAL
        if difference > expected.unit_amount * _CRITICAL_SHARE
        else MismatchSeverity.WARNING
    )


def worst_severity(found: ReconciliationReport) -> MismatchSeverity | None:
    """The gravest of its differences."""
    severities = {one.severity for one in found.details}
    return next(
        (severity for severity in reversed(MismatchSeverity) if severity in severities), None
    )


def repairable_mismatches(found: ReconciliationReport) -> tuple[Mismatch, ...]:
    """A price in another currency is for people to look at."""
    return tuple(one for one in found.details if one.difference is not None)


def in_daily_pass(finished_at: datetime, now: datetime) -> bool:
    """From the last of the early checks until the thirtieth day."""
    return FIRST_CHECKS[-1][1] < now - finished_at <= WATCHED_FOR


def _share(difference: int | None, expected: int) -> Decimal | None:
    return None if difference is None or expected == 0 else Decimal(difference) / expected


MIN_SAMPLE = 20
RATE_LIMIT_WINDOW = timedelta(minutes=5)

_LOW_SUCCESS, _CRITICAL_SUCCESS = Decimal("0.97"), Decimal("0.90")
_BACKLOG, _CRITICAL_BACKLOG = 50, 100
_MOST_RATE_LIMITS = 3

_COOLDOWNS = {
    AlertSeverity.WARNING: timedelta(minutes=30),
    AlertSeverity.CRITICAL: timedelta(minutes=15),
}


def evaluate_alerts(health: ProjectHealth) -> list[AlertCandidate]:
    """At most one a name, the most severe."""
    found = (
        _success_alert(health.applied, health.failed),
        _backlog_alert(health.dead_letters),
        _rate_limit_alert(health.rate_limits),
        _circuit_alert(health.open_circuit),
    )
    return [alert for alert in found if alert is not None]


def is_to_fire(severity: AlertSeverity, last: LastAlert | None, now: datetime) -> bool:
    """Once until its cooldown is over; what has become worse is told at once."""
    if last is None:
        return True
    became_worse = severity is AlertSeverity.CRITICAL and last.severity is AlertSeverity.WARNING
    return became_worse or now - last.at >= _COOLDOWNS[severity]


def _success_alert(applied: int, failed: int) -> AlertCandidate | None:
    rate = success_rate(applied, failed)
    if rate is None or applied + failed < MIN_SAMPLE or rate >= _LOW_SUCCESS:
        return None
    severity = AlertSeverity.CRITICAL if rate < _CRITICAL_SUCCESS else AlertSeverity.WARNING
    message = f"Only {rate:.1%} of {applied + failed} price changes succeeded."
    return AlertCandidate(PricingAlertName.SUCCESS_RATE, severity, message)


def _backlog_alert(size: int) -> AlertCandidate | None:
    if size <= _BACKLOG:
        return None
    severity = AlertSeverity.CRITICAL if size > _CRITICAL_BACKLOG else AlertSeverity.WARNING
    return AlertCandidate(
        PricingAlertName.DEAD_LETTERS, severity, f"{size} failed price changes wait for somebody."
    )


def _rate_limit_alert(count: int) -> AlertCandidate | None:
    if count <= _MOST_RATE_LIMITS:
        return None
    message = f"The shop refused {count} calls in five minutes for coming too fast."
    return AlertCandidate(PricingAlertName.RATE_LIMITS, AlertSeverity.WARNING, message)


def _circuit_alert(shop: str | None) -> AlertCandidate | None:
    if shop is None:
        return None
    message = f"The circuit of {shop} is open: price changes wait, because calls were refused or failed in a row."
    return AlertCandidate(PricingAlertName.CIRCUIT_OPEN, AlertSeverity.CRITICAL, message)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    id: str
    rule_id: str
    status: PricingRunState
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    id: str
    status: TargetState
    attempts: int = 0
    applied_at: datetime | None = None


@dataclass(frozen=True)
class PricedTarget:
    """A target's prices as they were when it was queued, or as they are now."""

    id: str
    before: Price
    after: Price


def broken_invariants(run: RunFacts, targets: Sequence[TargetFacts]) -> list[str]:
    """Empty for a run that keeps all its promises."""
    counts = Counter(target.status for target in targets)
    return [
        *_broken_times(run),
        *_broken_counts(run, counts),
        *(line for one in targets for line in _broken(one)),
    ]


def doubly_active_rules(runs: Iterable[RunFacts]) -> list[str]:
    """Rules with more than one run that is queued or being applied."""
    counts = Counter(run.rule_id for run in runs if run.status in ACTIVE_RUN_STATES)
    return [
        f"Rule {rule_id} has {count} active runs at once."
        for rule_id, count in counts.items()
        if count > 1
    ]


def repriced(queued: Iterable[PricedTarget], now: Iterable[PricedTarget]) -> list[str]:
    """Targets whose prices were changed after they were queued."""
    kept = {target.id: target for target in queued}
    changed = [target.id for target in now if target.id in kept and kept[target.id] != target]
    return [
        f"The prices of target {target_id} were changed after it was queued."
        for target_id in changed
    ]


def _broken_times(run: RunFacts) -> Iterator[str]:
    named = (("queued", run.queued_at), ("started", run.started_at), ("finished", run.finished_at))
    known = [(name, at) for name, at in named if at is not None]
    for (earlier, first), (later, second) in pairwise(known):
        if second < first:
            yield f"Run {run.id} was {later} before it was {earlier}."
    if run.status is not PricingRunState.PREVIEW and run.queued_at is None:
        yield f"Run {run.id} is {run.status} and was never queued."
    if run.status in ENDED_RUN_STATES and run.finished_at is None:
        yield f"Run {run.id} is {run.status} and does not say when it finished."


def _broken_counts(run: RunFacts, counts: Counter[TargetState]) -> Iterator[str]:
    applied, failed = counts[TargetState.APPLIED], counts[TargetState.FAILED]
    unfinished = sum(counts[state] for state in OPEN_TARGET_STATES)
    # A run that is partly rolled back may have none applied but those rolled back.
    reached = applied + counts[TargetState.ROLLED_BACK]
    checks = (
        (run.status is PricingRunState.APPLIED and failed > 0, f"has {failed} failed targets"),
        (
            run.status is PricingRunState.PARTIAL and (reached == 0 or failed == 0),
            "lacks applied or failed targets",
        ),
        (run.status is PricingRunState.FAILED and applied > 0, f"has {applied} applied targets"),
        (
            run.status is PricingRunState.ROLLED_BACK and applied > 0,
            f"has {applied} applied targets left",
        ),
        (run.status in ENDED_RUN_STATES and unfinished > 0, f"has {unfinished} unfinished targets"),
    )
    return (
        f"Run {run.id} is {run.status} and {fault}." for is_broken, fault in checks if is_broken
    )


def _broken(target: TargetFacts) -> Iterator[str]:
    if target.attempts < 0:
        yield f"Target {target.id} has {target.attempts} attempts."
    if target.attempts > MAX_RETRIES and target.status is not TargetState.FAILED:
        yield f"Target {target.id} is {target.status} after {target.attempts} retries; {MAX_RETRIES} are allowed."
    if target.status is TargetState.APPLIED and target.applied_at is None:
        yield f"Target {target.id} is APPLIED and does not say when."


MIN_SUCCESS_RATE = Decimal("0.97")
MAX_DEAD_LETTERS = 50
MAX_NAMED = 5
DAY_CHECKS = ("success_rate", "dead_letters", "no_mismatch", "invariants")


def evaluate_day(day: DayRuns) -> tuple[DayFinding, ...]:
    """One finding a check. A day without runs is a good day. Boundaries are strict, as those of
    alerts."""
    _, letters, mismatch, invariants = DAY_CHECKS
    kept = "Every run keeps its invariants."
    return (
        _succeeded(day),
        DayFinding(
            letters,
            day.dead_letters <= MAX_DEAD_LETTERS,
            f"{day.dead_letters} failed price changes wait for somebody.",
        ),
        DayFinding(mismatch, not day.mismatched, _mismatch_text(day), grave=True),
        DayFinding(invariants, not day.broken, _named(day.broken) or kept, grave=True),
    )


def _succeeded(day: DayRuns) -> DayFinding:
    rate, tried = day.success_rate, day.applied + day.failed
    if rate is None:
        return DayFinding(DAY_CHECKS[0], passed=True, says="No price change was tried.")
    is_enough = tried < MIN_SAMPLE or rate >= MIN_SUCCESS_RATE
    return DayFinding(
        DAY_CHECKS[0], is_enough, f"{day.applied} of {tried} price changes succeeded."
    )


def _mismatch_text(day: DayRuns) -> str:
    runs = [f"run {run_id}" for run_id in day.mismatched]
    if not runs:
        return "No check of the runs found a price that is critically different."
    return f"Prices in the shop are critically different from what was applied: {_named(runs)}."


def _named(texts: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(texts) - MAX_NAMED
    return ", ".join(text.rstrip(".") for text in texts[:MAX_NAMED]) + (
        f", and {more} more" if more > 0 else ""
    )
