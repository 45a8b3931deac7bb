"""What must not get lost is written when the database is there again, unless that takes too
long."""

import asyncio
from collections.abc import Iterator

import pytest

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.org_jobs import runs as stage
from automation_pipeline.org_jobs.runs import retry_write
from automation_pipeline_tests import waiting
from automation_pipeline_tests.tables import every_case

AN_HOUR = 3600.0


class Writing:
    """Fails as it is said, one after another, and then succeeds."""

    def __init__(self, *faults: Exception) -> None:
        self._faults: Iterator[Exception] = iter(faults)
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        fault = next(self._faults, None)
        if fault is not None:
            raise fault
        return self.count


def away(times: int) -> list[TransientError]:
    return [TransientError("Away.") for _ in range(times)]


def test_what_passes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "FIRST_WAIT_SECONDS", 0.0)
    assert waiting.run(retry_write(Writing(*away(3)), seconds=AN_HOUR)) == 4


@every_case("fault", [PermanentError("Never."), ValueError("a fault")])
def test_what_does_not_pass_is_raised_at_once(fault: Exception) -> None:
    writing = Writing(fault)
    with pytest.raises(type(fault)):
        waiting.run(retry_write(writing, seconds=AN_HOUR))
    assert writing.count == 1


def test_what_takes_too_long_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "FIRST_WAIT_SECONDS", 60.0)
    monkeypatch.setattr(stage, "LONGEST_WAIT_SECONDS", 60.0)
    writing = Writing(*away(9))

    async def trying() -> None:
        task = asyncio.ensure_future(retry_write(writing, seconds=90.0))
        await waiting.come_true(lambda: writing.count == 1)
        await asyncio.to_thread(lambda: None)
        waiting.leap(61.0)
        with pytest.raises(TransientError, match="Away"):
            await task

    waiting.run(trying(), threads=1)
    assert writing.count == 2
