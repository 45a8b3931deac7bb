"""Runs as they are shown: counted by the database, in as many queries for one as for many."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, update

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.runs import (
    PricingRunState,
    RuleRunFilter,
    RuleTrigger,
    TargetCounts,
    TargetState,
)
from automation_pipeline.pricing.queries.views import (
    get_run,
    list_runs,
    result_of,
    runs_by_id,
    skipped_of,
    targets_of,
    transitions_of,
)
from automation_pipeline.pricing.tables import RuleTargetRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf, variant
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(2, 3)))


def settle(bench: Bench, run_id: int, *rows: dict[str, Any]) -> list[int]:
    """What became of the first targets, one row each; the rest stay queued."""
    ids = [target.id for target in bench.targets(run_id)]
    with bench.database.transaction() as session:
        for id_, columns in zip(ids, rows, strict=False):
            session.execute(update(RuleTargetRow).where(RuleTargetRow.id == id_).values(**columns))
    return ids


def applied(bench: Bench) -> dict[str, Any]:
    return {"status": "APPLIED", "applied_at": bench.clock.now(), "duration_ms": 95}


def failed(kind: str) -> dict[str, Any]:
    return {
        "status": "FAILED",
        "error_type": kind,
        "error_retryable": False,
        "error_message": f"It was {kind}.",
    }


def test_runs_are_found_by_their_ids_as_each_is_shown(bench: Bench) -> None:
    runs = [bench.queued(), bench.previewed()]
    settle(bench, runs[0].id, applied(bench), failed("not_found"))
    with bench.database.reading() as session:
        assert runs_by_id(session, [runs[1].id, 99, runs[0].id]) == {
            run.id: bench.run(run.id) for run in runs
        }
        assert runs_by_id(session, []) == {}


def test_a_run_says_how_its_targets_stand(bench: Bench) -> None:
    run = bench.queued()
    settle(bench, run.id, applied(bench), applied(bench), failed("not_found"), failed("cancelled"))
    shown = bench.run(run.id)
    assert shown.targets == TargetCounts(queued=2, applied=2, failed=2, cancelled=1)
    assert shown.success_rate == 0.6667


def test_a_run_without_targets_has_no_success_rate(bench: Bench) -> None:
    run = bench.run(bench.asked_for(bench.rule()))
    assert (run.targets, run.success_rate, run.explain) == (TargetCounts(), None, None)


def test_a_run_is_written_with_ids_as_texts(bench: Bench) -> None:
    document = as_document(bench.previewed())
    assert (document["id"], document["ruleName"], document["previewedAt"]) == (
        "1",
        "A tenth off",
        "2026-05-04T10:00:00.000Z",
    )


def test_runs_are_listed_newest_first_by_page_and_choice(bench: Bench) -> None:
    one, two = bench.rule(), bench.rule(project_id="other")
    runs = [
        bench.previewed(one).id,
        bench.previewed(two).id,
        bench.queued(one).id,
        bench.asked_for(two),
    ]
    chosen = {
        RuleRunFilter(): runs[::-1],
        RuleRunFilter(project_id="other"): [runs[3], runs[1]],
        RuleRunFilter(rule_id=one.id): [runs[2], runs[0]],
        RuleRunFilter(status=PricingRunState.QUEUED): [runs[2]],
        RuleRunFilter(trigger=RuleTrigger.LAUNCHPAD): [runs[3]],
        RuleRunFilter(project_id="other", status=PricingRunState.QUEUED): [],
    }
    with bench.database.reading() as session:
        for what, expected in chosen.items():
            assert [run.id for run in list_runs(session, what, 10, 0)] == expected
        assert [run.id for run in list_runs(session, RuleRunFilter(), 2, 1)] == [runs[2], runs[1]]


def test_many_runs_take_as_many_queries_as_one(bench: Bench) -> None:
    rule = bench.rule()
    for _ in range(5):
        bench.previewed(rule)
    asked: list[object] = []
    event.listen(
        bench.database.engine, "before_cursor_execute", lambda *call: asked.append(call[2])
    )
    said: list[int] = []
    for limit in (1, 5):
        asked.clear()
        with bench.database.reading() as session:
            assert [
                run.targets.preview for run in list_runs(session, RuleRunFilter(), limit, 0)
            ] == [6] * limit
        said.append(len(asked))
    assert said[0] == said[1]


def test_targets_are_read_page_by_page(bench: Bench) -> None:
    run = bench.queued()
    ids = settle(bench, run.id, applied(bench))
    with bench.database.reading() as session:
        first = targets_of(session, run.id, limit=4)
        rest = targets_of(session, run.id, limit=4, after_id=first[-1].id)
        queued = targets_of(session, run.id, status=TargetState.QUEUED, limit=10)
    assert [target.id for target in [*first, *rest]] == ids
    assert [target.id for target in queued] == ids[1:]
    assert (first[0].before.unit_amount, first[0].after.unit_amount, first[0].warnings) == (
        1000,
        900,
        (),
    )


def test_skipped_variants_are_read_by_reason(bench: Bench) -> None:
    bench.shop.put(
        variant("1", "9", None), variant("2", "9", 0), variant("3", "9", 0), variant("4", "9", 1)
    )
    run = bench.previewed()
    with bench.database.reading() as session:
        everything = skipped_of(session, run.id, limit=10)
        assert [one.variant_id for one in everything] == ["1", "2", "3"]
        assert skipped_of(session, run.id, reason="zero_price", limit=1, offset=1) == everything[2:]


def test_the_result_tells_of_every_target_that_ended(bench: Bench) -> None:
    run = bench.queued()
    times = {"status": "PARTIAL", "started_at": bench.clock.now()}
    bench.set_run(run.id, **times, finished_at=bench.clock.now() + timedelta(seconds=31.24))
    ids = settle(
        bench,
        run.id,
        applied(bench),
        failed("not_found"),
        failed("cancelled"),
        {**applied(bench), "status": "ROLLED_BACK"},
    )
    with bench.database.reading() as session:
        told = result_of(session, run.id)
    assert (told.total_targets, told.applied_targets, told.failed_targets) == (3, 1, 2)
    assert (told.duration, told.success_rate) == (31240, 0.6667)
    first, second, _ = told.results
    assert (first.target_id, first.success, first.external_id, first.applied_price) == (
        str(ids[0]),
        True,
        "101",
        900,
    )
    assert (first.error, first.duration) == (None, 95)
    assert (second.success, second.applied_price, second.error) == (
        False,
        None,
        "It was not_found.",
    )


def test_the_log_holds_the_moves_of_the_run_and_of_its_targets_only(bench: Bench) -> None:
    bench.queued(bench.rule(selector={"product": ["1"]}))
    run = bench.queued(bench.rule(selector={"product": ["2"]}))
    targets = {str(target.id) for target in bench.targets(run.id)}
    with bench.database.reading() as session:
        lines = transitions_of(session, run.id, 10)
        assert transitions_of(session, run.id, 2, after_id=lines[0].id) == lines[1:3]
    assert [(line.machine, line.entity_id) for line in lines[:1]] == [("rule run", str(run.id))]
    assert {line.entity_id for line in lines[1:]} == targets
    assert {(line.from_state, line.to_state, line.actor) for line in lines} == {
        ("PREVIEW", "QUEUED", "user:1")
    }


def test_of_a_run_that_never_was_nothing_is_told(bench: Bench) -> None:
    with bench.database.reading() as session:
        for ask in (
            lambda: get_run(session, 99),
            lambda: targets_of(session, 99, limit=1),
            lambda: skipped_of(session, 99, limit=1),
            lambda: result_of(session, 99),
            lambda: transitions_of(session, 99, 1),
        ):
            with pytest.raises(NotFoundError, match="Rule run 99 not found"):
                ask()
