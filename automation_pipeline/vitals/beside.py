"""Checks beside each other, each for so long at most: what hangs is left to itself, and nobody waits for it."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread

from automation_pipeline.core.correlation import correlated, correlation_id
from automation_pipeline.core.errors import AutomationError, sentence_of
from automation_pipeline.vitals.finding import Finding, State

NOT_CONFIGURED = "optional, not configured"


@dataclass(frozen=True)
class Check:
    """`look` answers what it found in words, None for what is not configured and so not required either, or raises an
    AutomationError."""

    look: Callable[[], str | None]
    required: bool = True
    seconds: float = 10.0


def findings_of(checks: Mapping[str, Check]) -> tuple[Finding, ...]:
    """In the order of the checks."""
    begun = time.monotonic()
    under_way = {name: _begin(check) for name, check in checks.items()}
    return tuple(_end(name, check, under_way[name], begun) for name, check in checks.items())


def _begin(check: Check) -> Future[str | None]:
    found: Future[str | None] = Future()
    Thread(target=_work, args=(check, found, correlation_id()), daemon=True).start()
    return found


def _work(check: Check, found: Future[str | None], request: str | None) -> None:
    try:
        with correlated(request):
            found.set_result(check.look())
    except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
        found.set_exception(error)


def _end(name: str, check: Check, found: Future[str | None], begun: float) -> Finding:
    try:
        detail = found.result(timeout=max(0.0, begun + check.seconds - time.monotonic()))
    except TimeoutError:
        return Finding(name, State.FAILED, f"did not answer within {check.seconds:g} s", check.required)
    except AutomationError as error:
        return Finding(name, State.FAILED, sentence_of(error), check.required)
    except Exception as error:  # noqa: BLE001  a bug in one check must not hide what the others found
        return Finding(name, State.FAILED, f"could not be looked at ({type(error).__name__})", check.required)
    if detail is None:
        return Finding(name, State.NOT_SET, NOT_CONFIGURED, required=False)
    return Finding(name, State.OK, detail, check.required)
