"""What a seed says: the same to everybody, every kind as often as the others, no run struck dead
too often."""

from collections import Counter

from automation_pipeline_tests.survival.plan import (
    DEADLY,
    FAULTS_A_RUN,
    LAST_MOMENT,
    MEANING,
    MOST_DEADLY,
    Kind,
    Profile,
    kinds_of,
    plan,
)
from automation_pipeline_tests.survival.strikes import STRIKES
from automation_pipeline_tests.tables import every_case

KINDS = kinds_of(Profile.EMBEDDED)


def test_a_seed_says_the_same_each_time_and_another_seed_something_else() -> None:
    assert plan(11, 40, KINDS) == plan(11, 40, KINDS) != plan(12, 40, KINDS)


@every_case("seed", range(20))
def test_there_are_as_many_faults_as_wanted_and_of_every_kind_about_as_many(seed: int) -> None:
    counted = Counter(fault.kind for round_ in plan(seed, 100, KINDS) for fault in round_.faults)
    assert counted.total() == 100
    assert set(counted) == set(KINDS)
    assert max(counted.values()) - min(counted.values()) <= 1


@every_case("seed", range(20))
def test_no_run_gets_more_than_it_can_bear_and_its_faults_come_in_order(seed: int) -> None:
    for round_ in plan(seed, 100, KINDS):
        moments = [fault.at for fault in round_.faults]
        assert 0 < len(moments) <= FAULTS_A_RUN
        assert moments == sorted(set(moments))
        assert max(moments) < LAST_MOMENT
        assert sum(fault.kind in DEADLY for fault in round_.faults) <= MOST_DEADLY


def test_what_is_not_there_is_not_struck() -> None:
    assert {Kind.REDIS, Kind.DATABASE, Kind.CELERY_CHILD}.isdisjoint(KINDS)
    production = kinds_of(Profile.PRODUCTION)
    assert Kind.DISK_FULL not in production
    assert Kind.CELERY_WORKER not in production
    assert Kind.CELERY_WORKER in kinds_of(Profile.PRODUCTION, celery=True)


def test_every_kind_is_explained_and_can_be_done() -> None:
    assert set(MEANING) == set(STRIKES) == set(Kind)
