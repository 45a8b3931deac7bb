"""A job at work: whoever has a lower token than another writes nothing; what was heard comes back
as it was said."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.enrichment.models import (
    CompanyFields,
    SourceApi,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline.enrichment.queries.jobs import (
    LostJobError,
    StartedJob,
    abandon_job,
    fields_from,
    finish_job,
    outcomes_of,
    record_heartbeat,
    save_outcome,
    siren_of,
    start_job,
)
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import DOWN, INPI, RCS, SEARCH, says

SAID = SourceOutcome(
    source=SEARCH, duration_ms=5, record=says(SEARCH, creation_date=date(1955, 1, 1))
)


def begun(bench: Bench, job_id: int, token: int) -> StartedJob | None:
    with bench.database.transaction() as session:
        return start_job(
            session,
            job_id,
            Claim("company_enrichment:1", f"worker-{token}", token),
            3,
            bench.clock.now(),
        )


def begun_by_two(bench: Bench) -> tuple[StartedJob, StartedJob]:
    asked = bench.request()
    first, second = begun(bench, asked.job_id, 5), begun(bench, asked.job_id, 6)
    assert first is not None
    assert second is not None
    return first, second


@pytest.mark.parametrize("token", [4, 5])
def test_a_job_is_begun_under_a_higher_token_only(bench: Bench, token: int) -> None:
    asked = bench.request()
    assert begun(bench, asked.job_id, 5) is not None
    assert begun(bench, asked.job_id, token) is None
    assert (bench.job(asked.job_id).attempt, len(bench.events("Started"))) == (1, 1)


def test_a_job_that_is_over_is_not_begun_again(bench: Bench) -> None:
    asked = bench.enriched()
    assert begun(bench, asked.job_id, 10**12) is None
    assert bench.enrichment().status == "SUCCESS"


def test_whoever_has_the_lower_token_writes_nothing(bench: Bench) -> None:
    late, current = begun_by_two(bench)
    now, before = bench.pass_time(seconds=30), bench.events()
    for write in (
        lambda session: save_outcome(session, late, SAID, now),
        lambda session: finish_job(session, late, bench.options, now),
        lambda session: abandon_job(session, late, bench.options, now),
    ):
        with pytest.raises(LostJobError), bench.database.transaction() as session:
            write(session)
    with bench.database.transaction() as session:
        record_heartbeat(session, late, now)
    job = bench.job(current.facts.job_id)
    assert (job.state, job.lock_token, job.heartbeat_at == now) == ("RUNNING", 6, False)
    assert (bench.heard(job.id), bench.company(), bench.events()) == ({}, None, before)
    with bench.database.transaction() as session:
        save_outcome(session, current, SAID, now)
        record_heartbeat(session, current, now)
    assert list(bench.heard(job.id)) == [SEARCH]
    assert bench.job(job.id).heartbeat_at == now


def test_nothing_is_written_of_a_job_that_is_over(bench: Bench) -> None:
    _, current = begun_by_two(bench)
    with bench.database.transaction() as session:
        save_outcome(session, current, SAID, bench.clock.now())
        finish_job(session, current, bench.options, bench.clock.now())
    with pytest.raises(LostJobError), bench.database.transaction() as session:
        finish_job(session, current, bench.options, bench.clock.now())
    assert len(bench.events("Completed")) == 1


def test_what_was_heard_comes_back_in_the_order_of_the_calls(bench: Bench) -> None:
    _, current = begun_by_two(bench)
    failed = SourceOutcome(source=RCS, duration_ms=7, attempts=3, error=DOWN)
    with bench.database.transaction() as session:
        for outcome in (failed, SAID):
            save_outcome(session, current, outcome, bench.clock.now())
    with bench.database.reading() as session:
        known = outcomes_of(session, current.facts.job_id)
    assert list(known) == [SEARCH, RCS]
    record, error = known[SEARCH].record, known[RCS].error
    assert record is not None
    assert SAID.record is not None
    assert (record.said, record.document) == (SAID.record.said, SAID.record.document)
    assert error is not None
    assert (error.error_code, error.http_status, error.retryable, known[RCS].attempts) == (
        "UPSTREAM_5XX",
        503,
        True,
        3,
    )


def test_whoever_goes_on_is_told_whom_not_to_ask(bench: Bench) -> None:
    asked = bench.request()
    bench.work_and_die(asked.job_id, RCS)
    again = begun(bench, asked.job_id, 10**12)
    assert again is not None
    assert again.called == {SEARCH, INPI}
    assert again.facts.attempt == 2


def test_a_job_that_is_not_there_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match="job 99"), bench.database.reading() as session:
        siren_of(session, 99)


@given(
    st.builds(CompanyFields, legal_name=st.none() | st.text(), creation_date=st.none() | st.dates())
)
def test_fields_that_were_kept_are_the_same_fields(said: CompanyFields) -> None:
    kept = {name: value for name, value in vars(said).items() if value is not None}
    if said.creation_date is not None:
        kept["creation_date"] = said.creation_date.isoformat()
    assert fields_from(kept) == said


def test_a_document_is_kept_as_it_is(bench: Bench) -> None:
    _, current = begun_by_two(bench)
    document = {"liste": [{"é": "œuvre"}, None, 1.5], "vide": {}}
    record = SourceRecord(siren="1", said=CompanyFields(), document=document, is_masked=True)
    with bench.database.transaction() as session:
        save_outcome(
            session,
            current,
            SourceOutcome(source=INPI, duration_ms=1, record=record),
            bench.clock.now(),
        )
    row = bench.heard(current.facts.job_id)[SourceApi.INPI]
    assert (row.document, row.said, row.is_masked) == (document, {}, True)
