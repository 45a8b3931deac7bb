"""Configurations as people read them: newest first, page by page, in as many queries for many as
for one."""

import pytest

from automation_pipeline.audits.models.configs import ConfigShown, parse_config
from automation_pipeline.audits.queries.configs import config_page, config_view
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import counting
from automation_pipeline_tests.audits.configurations import (
    FULL,
    NOW,
    add,
    add_audit,
    document,
    read,
)

BARE: dict[str, bool] = {}
STEPS, STATS = {"include_steps": True}, {"include_stats": True}


def page(
    database: Database,
    shown: dict[str, bool],
    limit: int = 100,
    offset: int = 0,
    all_: bool = False,
) -> list[ConfigShown]:
    with database.reading() as session:
        return config_page(session, **shown, include_inactive=all_, limit=limit, offset=offset)


def test_a_page_is_newest_first_and_counts_steps_and_weight(database: Database) -> None:
    first, hidden, last = (
        add(database, "One"),
        add(database, "Two", isActive=False),
        add(database, "Three", steps=7),
    )
    found = page(database, BARE)
    assert [(one.id, one.name, one.steps_count, one.total_weight) for one in found] == [
        (last, "Three", 7, 35),
        (first, "One", 3, 15),
    ]
    assert {(one.steps, one.stats) for one in found} == {(None, None)}
    assert [one.id for one in page(database, BARE, all_=True)] == [last, hidden, first]
    assert [one.id for one in page(database, BARE, all_=True, limit=1, offset=1)] == [hidden]
    assert page(database, BARE, offset=9) == []


@pytest.mark.parametrize(
    ("shown", "queries"),
    [
        (BARE, 1),
        (STEPS, 1),
        (STATS, 2),
        (STEPS | STATS, 2),
    ],
)
@pytest.mark.parametrize("configs", [0, 1, 6])
def test_many_take_as_many_queries_as_one(
    database: Database, shown: dict[str, bool], queries: int, configs: int
) -> None:
    for number in range(configs):
        add(database, f"Config {number}")
    with counting(database) as told:
        assert len(page(database, shown)) == configs
    assert len([one for one in told if one.startswith("SELECT")]) == queries


def test_steps_and_figures_are_those_of_the_configuration(database: Database) -> None:
    first, second = add(database, "One"), add(database, "Two", steps=2)
    with database.transaction() as session:
        add_audit(session, first, "a", status="failed")
        add_audit(session, first, "b")
    two, one = page(database, STEPS | STATS)
    for shown, config_id in ((one, first), (two, second)):
        stored = read(database, config_id)
        assert shown.steps is not None
        assert tuple(step.id for step in shown.steps) == stored.step_ids
        assert [(step.position, step.name) for step in shown.steps] == [
            (step.position, step.name) for step in stored.config.steps
        ]
    assert one.stats is not None
    assert two.stats is not None
    assert (one.stats.total_audits, one.stats.failed_audits, two.stats.total_audits) == (2, 1, 0)


@pytest.mark.parametrize("given", [FULL, document(isActive=False)])
def test_what_is_shown_can_be_sent_back(database: Database, given: dict[str, object]) -> None:
    fields = {name: value for name, value in given.items() if name not in {"name", "steps"}}
    config_id = add(database, str(given["name"]), **fields)
    with database.reading() as session:
        shown = config_view(session, config_id, include_stats=True).document()
    assert (shown["id"], shown["createdAt"]) == (str(config_id), "2026-05-04T10:00:00.000Z")
    assert parse_config(shown) == read(database, config_id).config
    assert read(database, config_id).created_at == NOW


def test_what_was_not_asked_for_is_not_in_the_document(database: Database) -> None:
    config_id = add(database)
    with database.reading() as session:
        assert "stats" not in config_view(session, config_id).document()
        with pytest.raises(NotFoundError, match=r"^Audit config with ID '7' not found$"):
            config_view(session, 7)
    [bare] = page(database, BARE)
    assert not {"steps", "stats"} & set(bare.document())
    assert bare.id == config_id
