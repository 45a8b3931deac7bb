"""A new order: taken whole, refused whole, and one of them when several come at once."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automation_pipeline.audits.configs import reorder_steps
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import add, on, read
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.processes import CREW, at_once


def reorder_many(url: str, config_id: int, order: tuple[int, ...], times: int) -> None:
    def reorder(database: Database) -> None:
        for turn in range(times):
            reorder_steps(
                config_id, order[turn:] + order[:turn], database=database, clock=SystemClock()
            )

    on(url, reorder)


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_order_of_the_steps_is_the_order_they_have_then(
    database: Database, clock: StandingClock, data: st.DataObject
) -> None:
    config_id = add(database, steps=6)
    before = read(database, config_id)
    order = data.draw(st.permutations(before.step_ids))
    told = reorder_steps(config_id, order, database=database, clock=clock)
    assert told == read(database, config_id)
    assert told.step_ids == tuple(order)
    by_id = dict(zip(before.step_ids, before.config.steps, strict=True))
    assert [step.name for step in told.config.steps] == [by_id[step_id].name for step_id in order]
    assert [step.position for step in told.config.steps] == [1, 2, 3, 4, 5, 6]


def test_an_incomplete_order_is_refused_and_nothing_moves(
    database: Database, clock: StandingClock
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    with pytest.raises(InvalidInputError, match="every step once"):
        reorder_steps(config_id, before.step_ids[:2], database=database, clock=clock)
    assert read(database, config_id) == before


def test_what_does_not_exist_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError):
        reorder_steps(7, [1], database=database, clock=clock)


def test_orders_given_by_several_processes_come_one_after_the_other(
    database: Database, database_url: str
) -> None:
    config_id = add(database, steps=5)
    steps = read(database, config_id).step_ids
    orders = [steps, steps[::-1], steps[2:] + steps[:2], (*steps[3:], *steps[2::-1])]
    assert len(orders) == CREW
    at_once(reorder_many, *((database_url, config_id, order, 5) for order in orders))
    last = read(database, config_id)
    assert last.step_ids in {order[4:] + order[:4] for order in orders}
    assert [step.position for step in last.config.steps] == [1, 2, 3, 4, 5]
