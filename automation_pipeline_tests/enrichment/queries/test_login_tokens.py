"""The token of the last login at a source: one for all processes, for as long as it serves."""

from datetime import timedelta

from automation_pipeline.enrichment.sources import (
    DatabaseLoginTokens,
    set_rest,
    source_statuses,
    take_call,
)
from automation_pipeline.enrichment.tables import SourceStatusRow
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import INPI, RCS

HOUR = timedelta(hours=1)


def tokens(bench: Bench) -> DatabaseLoginTokens:
    return DatabaseLoginTokens(bench.database, bench.clock, INPI)


def test_what_one_keeps_another_finds_until_it_serves_no_longer(bench: Bench) -> None:
    assert tokens(bench).current() is None
    tokens(bench).keep("jwt.s3cret", bench.clock.now() + HOUR)
    assert tokens(bench).current() == "jwt.s3cret"
    assert DatabaseLoginTokens(bench.database, bench.clock, RCS).current() is None
    bench.pass_time(hours=1)
    assert tokens(bench).current() is None


def test_a_new_token_takes_the_place_of_the_old_one(bench: Bench) -> None:
    for token in ("old", "new"):
        tokens(bench).keep(token, bench.clock.now() + HOUR)
    assert tokens(bench).current() == "new"


def test_only_the_token_that_was_refused_is_forgotten(bench: Bench) -> None:
    tokens(bench).keep("new", bench.clock.now() + HOUR)
    tokens(bench).forget("old")
    assert tokens(bench).current() == "new"
    tokens(bench).forget("new")
    assert tokens(bench).current() is None


def test_how_the_source_stands_is_not_touched_nor_is_the_token_by_it(bench: Bench) -> None:
    now = bench.clock.now()
    with bench.database.transaction() as session:
        take_call(session, INPI, None, now)
        set_rest(session, INPI, HOUR, "It is busy.", now)
        before = source_statuses(session)[INPI]
    tokens(bench).keep("jwt.s3cret", now + HOUR)
    tokens(bench).forget("jwt.s3cret")
    tokens(bench).keep("jwt.s3cret", now + HOUR)
    with bench.database.transaction() as session:
        assert source_statuses(session)[INPI] == before
        take_call(session, INPI, None, now)
    assert tokens(bench).current() == "jwt.s3cret"


def test_whoever_reads_how_the_sources_stand_does_not_read_the_token(bench: Bench) -> None:
    tokens(bench).keep("jwt.s3cret", bench.clock.now() + HOUR)
    with bench.database.reading() as session:
        row = session.get_one(SourceStatusRow, INPI)
        assert "token" not in vars(row)
        assert "s3cret" not in repr((vars(row), row, tokens(bench), source_statuses(session)))
