"""What is dropped before details, what is ignored after them (reference 3.4): tables, and the laws
of a choice."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.models.runs import Reason
from automation_pipeline.automation.models.schedules import (
    DropReason,
    EmptyReason,
    FicheCandidate,
    FicheChoice,
    FicheSelection,
    SelectionMode,
    split_ids,
)
from automation_pipeline.automation.rules.fiches import filter_candidates, ignore_reason
from automation_pipeline_tests.tables import every_case

NORTH, SOUTH, UNKNOWN = FicheCandidate("1", "NORD"), FicheCandidate("2", "SUD"), FicheCandidate("3")
BLANK, AUDITED = FicheCandidate("4", "  "), FicheCandidate("5", "NORD", audited=True)
ALL = [NORTH, SOUTH, UNKNOWN, BLANK, AUDITED]


def selection(**fields: object) -> FicheSelection:
    return FicheSelection.model_validate({"mode": SelectionMode.DATE_RANGE, **fields})


def choose(candidates: list[FicheCandidate], **fields: object) -> tuple[str, dict[str, int]]:
    choice = filter_candidates(candidates, selection(**fields))
    assert list(choice.dropped) == list(DropReason)
    return "".join(choice.kept), {
        str(reason): count for reason, count in choice.dropped.items() if count
    }


@every_case(
    ("fields", "kept", "dropped"),
    [
        ({}, "12345", {}),
        ({"groupes": ("NORD",)}, "1345", {"groupe_not_selected": 1}),
        ({"groupes": (" NORD ", "SUD")}, "12345", {}),
        ({"groupes": ("nord",)}, "34", {"groupe_not_selected": 3}),
        ({"only_unaudited": True}, "1234", {"audited": 1}),
        ({"groupes": ("SUD",), "only_unaudited": True}, "234", {"groupe_not_selected": 2}),
        ({"only_with_recordings": True, "max_recordings_per_fiche": 1}, "12345", {}),
        ({"max_fiches": 2}, "12", {"over_max_fiches": 3}),
        ({"max_fiches": 9}, "12345", {}),
        (
            {"groupes": ("SUD",), "only_unaudited": True, "max_fiches": 2},
            "23",
            {"groupe_not_selected": 2, "over_max_fiches": 1},
        ),
    ],
)
def test_only_certainly_unwanted_candidates_are_dropped_early(
    fields: dict[str, object], kept: str, dropped: dict[str, int]
) -> None:
    assert choose(ALL, **fields) == (kept, dropped)


@every_case("mode", SelectionMode)
def test_the_early_filters_hold_for_fiches_named_by_hand_too(mode: SelectionMode) -> None:
    assert choose(ALL, mode=mode, groupes=("NORD",), only_unaudited=True) == (
        "134",
        {"groupe_not_selected": 1, "audited": 1},
    )


def test_a_repeated_fiche_is_there_once_and_does_not_use_up_the_limit() -> None:
    assert choose([SOUTH, SOUTH, NORTH, SOUTH, UNKNOWN], max_fiches=2) == (
        "21",
        {"duplicates": 2, "over_max_fiches": 1},
    )


CANDIDATES = st.lists(
    st.builds(
        FicheCandidate,
        st.sampled_from("123456789"),
        st.sampled_from([None, "", "NORD", "SUD"]),
        st.booleans(),
    )
)
SELECTIONS = st.builds(
    selection,
    max_fiches=st.none() | st.integers(1, 6),
    groupes=st.sampled_from([(), ("NORD",), ("NORD", "SUD")]),
    only_unaudited=st.booleans(),
)


@given(CANDIDATES, SELECTIONS)
def test_a_choice_keeps_its_laws(candidates: list[FicheCandidate], wanted: FicheSelection) -> None:
    choice: FicheChoice = filter_candidates(candidates, wanted)
    named = list(dict.fromkeys(candidate.fiche_id for candidate in candidates))
    assert len(choice.kept) <= (wanted.max_fiches or len(candidates))
    assert len(set(choice.kept)) == len(choice.kept)
    assert list(choice.kept) == [fiche_id for fiche_id in named if fiche_id in choice.kept]
    assert len(choice.kept) + sum(choice.dropped.values()) == len(candidates)
    assert (
        filter_candidates(
            [candidate for candidate in candidates if candidate.fiche_id in choice.kept], wanted
        ).kept
        == choice.kept
    )


@given(st.lists(st.text("12 ,\n\t\u00a0;")), st.none() | st.integers(1, 4))
def test_ids_named_by_hand_are_those_of_the_selection(entries: list[str], most: int | None) -> None:
    wanted = selection(mode=SelectionMode.MANUAL, fiche_ids=tuple(entries), max_fiches=most)
    firsts = tuple(dict.fromkeys(split_ids(wanted.fiche_ids)))[: wanted.max_fiches]
    assert (
        filter_candidates(
            [FicheCandidate(fiche_id) for fiche_id in split_ids(wanted.fiche_ids)], wanted
        ).kept
        == firsts
    )


MISSING = (Reason.MISSING_GROUPE, "Missing groupe")
OTHER = (Reason.GROUPE_NOT_SELECTED, "Groupe not selected (SUD)")
NONE_AT_ALL = (Reason.NO_RECORDINGS, "No recordings")


def too_many(values: int, most: int) -> tuple[Reason, str]:
    return Reason.TOO_MANY_RECORDINGS, f"Too many recordings ({values} > {most})"


@every_case(
    ("groupe", "recordings", "fields", "ceiling", "verdict"),
    [
        (None, 0, {}, 0, None),
        ("SUD", 900, {}, 0, None),
        ("NORD", 1, {"groupes": ("NORD",)}, 0, None),
        ("SUD", 1, {"groupes": ("NORD",)}, 0, OTHER),
        (" SUD ", 1, {"groupes": ("NORD",)}, 0, OTHER),
        (None, 1, {"groupes": ("NORD",)}, 0, MISSING),
        ("", 1, {"groupes": ("NORD",)}, 0, MISSING),
        ("NORD", 3, {"max_recordings_per_fiche": 3}, 0, None),
        ("NORD", 4, {"max_recordings_per_fiche": 3}, 0, too_many(4, 3)),
        ("NORD", 4, {"max_recordings_per_fiche": 5}, 2, None),
        ("NORD", 6, {"max_recordings_per_fiche": 5}, 9, too_many(6, 5)),
        ("NORD", 3, {}, 2, too_many(3, 2)),
        ("NORD", 2, {}, 2, None),
        ("NORD", 0, {"only_with_recordings": True}, 0, NONE_AT_ALL),
        ("NORD", 1, {"only_with_recordings": True}, 0, None),
        # The groupe is looked at first, then how many recordings there are, then that there are
        # any.
        ("SUD", 9, {"groupes": ("NORD",)}, 2, OTHER),
        (None, 0, {"groupes": ("NORD",), "only_with_recordings": True}, 2, MISSING),
        ("NORD", 0, {"groupes": ("NORD",), "only_with_recordings": True}, 2, NONE_AT_ALL),
    ],
)
def test_a_fiche_with_details_is_ignored_for_one_reason_with_a_fixed_text(
    groupe: str | None,
    recordings: int,
    fields: dict[str, object],
    ceiling: int,
    verdict: tuple[Reason, str] | None,
) -> None:
    assert ignore_reason(groupe, recordings, selection(**fields), ceiling) == verdict


def test_an_empty_run_has_its_message() -> None:
    assert {str(reason): reason.message for reason in EmptyReason} == {
        "no_fiches_manual": "No fiches found",
        "no_dates": "No dates to query",
        "no_fiches_found": "No fiches found",
    }
