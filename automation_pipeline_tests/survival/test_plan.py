"""A plan depends on its seed only, contains every kind equally often, and limits the deadly faults of a
run."""

from collections import Counter

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.survival.injection import INJECTIONS
from automation_pipeline_tests.survival.plan import (
    DEADLY,
    LAST_ITEM,
    MAX_DEADLY_FAULTS,
    MAX_FAULTS_PER_RUN,
    MEANING,
    Kind,
    Profile,
    kinds_of,
    plan,
)

KINDS = kinds_of(Profile.EMBEDDED)


def test_a_seed_gives_the_same_plan_each_time_and_another_seed_another_plan() -> None:
    assert plan(11, 40, KINDS) == plan(11, 40, KINDS) != plan(12, 40, KINDS)


@every_case("seed", range(20))
def test_a_plan_has_the_requested_number_of_faults_with_every_kind_about_equally_often(
    seed: int,
) -> None:
    counted = Counter(fault.kind for round_ in plan(seed, 100, KINDS) for fault in round_.faults)
    assert counted.total() == 100
    assert set(counted) == set(KINDS)
    assert max(counted.values()) - min(counted.values()) <= 1


@every_case("seed", range(20))
def test_a_run_has_few_deadly_faults_in_the_order_of_their_times(seed: int) -> None:
    for round_ in plan(seed, 100, KINDS):
        items = [fault.at for fault in round_.faults]
        assert 0 < len(items) <= MAX_FAULTS_PER_RUN
        assert items == sorted(set(items))
        assert max(items) < LAST_ITEM
        assert sum(fault.kind in DEADLY for fault in round_.faults) <= MAX_DEADLY_FAULTS


def test_a_profile_gets_no_faults_of_services_that_it_lacks() -> None:
    assert {Kind.REDIS, Kind.DATABASE, Kind.CELERY_CHILD}.isdisjoint(KINDS)
    production = kinds_of(Profile.PRODUCTION)
    assert Kind.DISK_FULL not in production
    assert Kind.CELERY_WORKER not in production
    assert Kind.CELERY_WORKER in kinds_of(Profile.PRODUCTION, celery=True)


def test_every_kind_has_an_explanation_and_an_injection() -> None:
    assert set(MEANING) == set(INJECTIONS) == set(Kind)
