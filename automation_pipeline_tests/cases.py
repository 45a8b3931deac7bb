"""Tables of cases: one test per rule, which reports every case that fails."""

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

Labels = Callable[[Any], object] | Iterable[object] | None


def every_case(
    names: str | Sequence[str], cases: Iterable[object], *, ids: Labels = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, but makes one test of all cases.

    The cases share the fixtures of the test, so a case must leave nothing behind that another case
    could see.
    """
    fields = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [_values(case, len(fields)) for case in cases]
    labels = [None] * len(table) if ids is None or callable(ids) else list(ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run_all(**fixtures: object) -> None:
            failures: list[BaseException] = []
            for values, label in zip(table, labels, strict=True):
                case = dict(zip(fields, values, strict=True))
                try:
                    test(**fixtures, **case)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised together below
                    error.add_note(f"Case: {label or _format_case(case)}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} cases fail", failures)

        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in fields]
        run_all.__signature__ = signature.replace(parameters=fixtures)  # pyright: ignore[reportAttributeAccessIssue]
        return run_all

    return decorate


def _values(case: object, count: int) -> Sequence[object]:
    if isinstance(case, ParameterSet):
        return case.values
    if count == 1:
        return (case,)
    assert isinstance(case, Iterable)
    return tuple(case)


def _format_case(case: dict[str, object]) -> str:
    """Abbreviated, because a value may be very long."""
    return ", ".join(f"{name}={reprlib.repr(value)}" for name, value in case.items())
