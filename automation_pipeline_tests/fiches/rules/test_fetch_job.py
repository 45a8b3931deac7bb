"""A job over days: its days are in one place each whatever happens, and it ends once."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.fiches.models.days import DayFailed, SalesDay
from automation_pipeline.fiches.models.fetch_jobs import (
    FETCH_JOB,
    FetchJob,
    JobStatus,
    count_day,
    fail_job,
    start_job,
)
from automation_pipeline_tests.tables import every_case

FIRST = date(2026, 2, 1)
DAYS = tuple(FIRST + timedelta(days=n) for n in range(6))
P, W, C, F = JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.COMPLETE, JobStatus.FAILED


def a_job(fetched: int = 0, status: JobStatus = W) -> FetchJob:
    return FetchJob(
        id="j", start=DAYS[0], end=DAYS[-1], status=status, fetched=DAYS[:fetched], remaining=DAYS[fetched:],
        created_by="user:1",
    )  # fmt: skip


def had(day: date, fiches: int = 2) -> SalesDay:
    at = datetime(2026, 5, 4, tzinfo=UTC)
    return SalesDay(
        day, at, listed=fiches, duplicates=0, new=0, changed=0, missing_cle=0, without_recordings=0
    )


def outcomes(days: Sequence[date], good: Sequence[bool]) -> list[SalesDay | DayFailed]:
    return [
        had(day) if is_good else DayFailed(day, "no")
        for day, is_good in zip(days, good, strict=False)
    ]


@given(
    st.integers(0, 5),
    st.lists(
        st.tuples(st.sampled_from((*DAYS, FIRST - timedelta(days=9))), st.booleans()), max_size=20
    ),
)
def test_the_days_are_partitioned_whatever_comes_in_whichever_order(
    fetched: int, told: list[tuple[date, bool]]
) -> None:
    job = a_job(fetched)
    for day, good in told:
        before = job
        job = count_day(job, had(day) if good else DayFailed(day, "no"))
        places = [*job.fetched, *job.remaining, *job.failed]
        assert sorted(places) == list(DAYS)
        assert job.processed + len(job.remaining) == job.total_days == len(DAYS)
        assert 0 <= before.progress <= job.progress <= 100
        assert (job.progress == 100) == (not job.remaining) == job.is_over
        assert set(before.fetched) <= set(job.fetched)
        assert set(before.failed) <= set(job.failed)


def test_a_day_is_counted_once() -> None:
    job = count_day(a_job(), had(DAYS[3]))
    assert count_day(job, had(DAYS[3])) is job
    assert count_day(job, DayFailed(DAYS[3], "later")) is job
    assert (job.total_fiches, job.fetched, job.progress) == (2, (DAYS[3],), 16)
    assert count_day(replace(job, total_fiches=None), had(DAYS[0])).total_fiches is None


@every_case(
    ("known", "good", "status", "error"),
    [
        (0, [True] * 6, C, None),
        (0, [False] * 5 + [True], C, None),
        (0, [True] + [False] * 5, C, None),
        (5, [False], C, None),
        (0, [False] * 6, F, "No sales list of the range could be fetched: no"),
    ],
)
def test_a_job_fails_only_when_there_is_not_one_day(
    known: int, good: list[bool], status: JobStatus, error: str | None
) -> None:
    job = a_job(known)
    for outcome in outcomes(job.remaining, good):
        job = count_day(job, outcome)
    assert (job.status, job.error, job.progress) == (status, error, 100)


def test_what_was_broken_off_keeps_what_it_has_and_takes_nothing_more() -> None:
    job = fail_job(count_day(a_job(), had(DAYS[0])), "The run was terminated")
    assert (job.status, job.error, job.fetched, len(job.remaining)) == (
        F,
        "The run was terminated",
        DAYS[:1],
        5,
    )
    assert count_day(job, had(DAYS[1])) is job


def test_a_job_that_is_begun_again_goes_on() -> None:
    job = start_job(a_job(status=P))
    assert job.status is W
    assert start_job(job) is job


LEGAL = {(P, W), (P, F), (W, C), (W, F)}


@every_case(("frm", "to"), [(frm, to) for frm in JobStatus for to in JobStatus])
def test_the_moves_are_those_and_no_others(frm: JobStatus, to: JobStatus) -> None:
    assert FETCH_JOB.can_move(frm, to) == ((frm, to) in LEGAL)


@every_case("status", [C, F])
def test_what_is_over_is_neither_begun_nor_broken_off(status: JobStatus) -> None:
    over = replace(a_job(), status=status)
    with pytest.raises(IllegalMoveError):
        start_job(over)
    with pytest.raises(IllegalMoveError):
        fail_job(over, "late")


def test_without_days_there_is_nothing_left_to_do() -> None:
    assert replace(a_job(), remaining=()).progress == 100
