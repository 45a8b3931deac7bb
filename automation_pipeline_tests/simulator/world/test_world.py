"""The world keeps its promises: stable days, reachable ids, and the kinds of fiche that tests rely
on."""

import re
from collections import Counter
from datetime import UTC, date, timedelta
from zoneinfo import ZoneInfo

import pytest

from automation_pipeline.simulator.world.world import AGENTS_PER_GROUPE, GROUPES, Fiche, Kind, World
from automation_pipeline_tests.cases import every_case

TUESDAY = date(2026, 2, 3)
SUMMER_DAY = date(2026, 7, 15)
FILE_NAME = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-(\d\d-\d\d-\d\d-\d\dh\d\d)-(33\d{9})-(33\d{9})\.mp3",
    re.IGNORECASE,
)


def exactly(count: int, seed: int = 7) -> World:
    return World(seed, fiches_per_day=count, vary=False)


def of_kind(fiches: tuple[Fiche, ...], kind: Kind) -> list[Fiche]:
    return [fiche for fiche in fiches if fiche.kind is kind]


def test_a_day_depends_on_the_seed() -> None:
    assert World(7).day(TUESDAY) == World(7).day(TUESDAY)
    assert World(7).day(TUESDAY)[0] != World(8).day(TUESDAY)[0]


def test_every_fiche_is_found_by_its_id_alone_and_ids_never_repeat() -> None:
    days = [TUESDAY + timedelta(days=number) for number in range(30)]
    fiches = [fiche for day in days for fiche in World(3).day(day)]
    assert [World(3).fiche(fiche.id) for fiche in fiches] == fiches
    assert len({fiche.id for fiche in fiches}) == len(fiches)


@every_case(
    "fiche_id", ["", "0", "abc", "-953000003", "0953000003", "953000024", "٣", "9" * 30, "9530 3"]
)
def test_an_unknown_id_has_no_fiche(fiche_id: str) -> None:
    assert exactly(24).fiche(fiche_id) is None


@every_case("count", [0, 1, 10, 24, 100, 2000])
def test_without_variation_a_day_has_exactly_the_requested_number(count: int) -> None:
    assert len(exactly(count).day(TUESDAY)) == count


def test_with_variation_days_differ_a_little_and_sundays_are_quiet() -> None:
    weeks = [
        [len(World(7, 100).day(TUESDAY + timedelta(days=7 * week + day))) for day in range(7)]
        for week in range(4)
    ]
    assert all(75 <= count <= 115 for week in weeks for count in week[:4])
    assert all(0 < week[5] < 35 for week in weeks)
    assert len({count for week in weeks for count in week}) > 5


def test_days_outside_this_century_have_no_fiches() -> None:
    assert World(7).day(date(1999, 12, 31)) == () == World(7).day(date(2100, 1, 1))


@every_case("count", [-1, 50_001])
def test_an_impossible_volume_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="fiches per day must be between"):
        World(7, count)


@every_case("count", [10, 11, 24, 60, 101, 500])
@every_case("day", [TUESDAY, SUMMER_DAY, date(2024, 2, 29)])
def test_every_day_of_ten_or_more_has_every_special_kind(day: date, count: int) -> None:
    fiches = exactly(count).day(day)
    kinds = Counter(fiche.kind for fiche in fiches)
    assert kinds[Kind.MISSING] == kinds[Kind.MANY_RECORDINGS] == 1
    assert all(
        kinds[kind] >= 2 for kind in (Kind.NO_GROUPE, Kind.NO_RECORDINGS, Kind.NO_CLE, Kind.NO_URL)
    )
    assert len({fiche.groupe for fiche in fiches} - {""}) >= 3


def test_each_kind_has_its_properties() -> None:
    fiches = exactly(200).day(TUESDAY)
    assert all(fiche.groupe == "" for fiche in of_kind(fiches, Kind.NO_GROUPE))
    assert all(not fiche.recordings for fiche in of_kind(fiches, Kind.NO_RECORDINGS))
    assert all(fiche.listed_cle is None for fiche in of_kind(fiches, Kind.NO_CLE))
    assert all(not fiche.recordings[0].has_url for fiche in of_kind(fiches, Kind.NO_URL))
    assert all(len(fiche.recordings) >= 12 for fiche in of_kind(fiches, Kind.MANY_RECORDINGS))
    ordinary = of_kind(fiches, Kind.ORDINARY)
    assert all(fiche.groupe and fiche.listed_cle and fiche.recordings for fiche in ordinary)
    assert sum(len(fiche.recordings) <= 3 for fiche in ordinary) > 0.8 * len(ordinary)


def test_an_agent_belongs_to_one_groupe_whatever_the_day_and_the_seed() -> None:
    fiches = exactly(300).day(TUESDAY) + exactly(300, seed=99).day(SUMMER_DAY)
    teams = {(fiche.agent.id, fiche.agent.groupe) for fiche in fiches}
    assert (
        len(teams) == len({agent_id for agent_id, _ in teams}) == AGENTS_PER_GROUPE * len(GROUPES)
    )
    assert all(fiche.groupe in {"", fiche.agent.groupe} for fiche in fiches)


@every_case(("day", "hours_ahead"), [(TUESDAY, 1), (SUMMER_DAY, 2)])
def test_a_file_name_has_french_time_and_the_start_is_in_utc(day: date, hours_ahead: int) -> None:
    for fiche in exactly(24).day(day):
        for call in fiche.recordings:
            match = FILE_NAME.fullmatch(call.file_name)
            assert match
            assert (
                match[2] == f"{call.started_at.astimezone(ZoneInfo('Europe/Paris')):%d-%m-%y-%Hh%M}"
            )
            assert match[2] == f"{call.started_at + timedelta(hours=hours_ahead):%d-%m-%y-%Hh%M}"
            assert match.group(3, 4) == (call.from_number, call.to_number)
            assert call.started_at.tzinfo is UTC


def test_a_recording_is_found_by_its_call_id_alone() -> None:
    world = exactly(24)
    calls = [call for fiche in world.day(TUESDAY) for call in fiche.recordings]
    assert [world.recording(call.call_id) for call in calls] == calls
    assert world.recording("95300000399") is None
    assert world.recording("x") is None
