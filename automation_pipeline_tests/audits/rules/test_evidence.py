"""What counts as evidence, and what becomes of a finding without it."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import GatingOptions, Timeline
from automation_pipeline.audits.models.findings import (
    Conforme,
    ControlPoint,
    GatingStats,
    Niveau,
    Statut,
    StepFinding,
)
from automation_pipeline.audits.rules.tools import normalise
from automation_pipeline.audits.rules.verdicts import UNPROVEN, gate
from automation_pipeline_tests.audits.rules.strategies import (
    citation,
    finding,
    findings,
    point,
    recording,
    timelines,
    weights,
)

P, H, A, N = Statut.PRESENT, Statut.PARTIEL, Statut.ABSENT, Statut.NON_APPLICABLE
CALLS = Timeline((
    recording(0, "speaker_0: Bonjour, cet appel est ENREGISTRÉ…", "speaker_0: Vous pouvez vous y opposer."),
    recording(1, "speaker_1: Mon numéro ORIAS est le 12 345 678."),
))  # fmt: skip
ON, OFF = GatingOptions(), GatingOptions(enabled=False)
REAL = citation("cet appel est enregistré")
INVENTED = citation("vous avez trente jours")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        (" … !? ", ""),
        ("Cet APPEL est enregistré.", "cet appel est enregistre"),
        ("cet appel est enregistre\u0301", "cet appel est enregistre"),
        ("L'été\n\tÀ   Noël", "l ete a noel"),
        ("speaker_0: oui", "speaker 0 oui"),
        ("12 345,67 €", "12 345 67"),
        ("Cœur", "cœur"),
    ],
)
def test_a_text_is_normalised_to_its_words(text: str, words: str) -> None:
    assert normalise(text) == words


@given(st.text())
def test_what_is_normalised_stays_so(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    ("texte", "at", "holds"),
    [
        ("cet appel est enregistré", (0, 0), True),
        ("« Cet appel est enregistre ! »", (0, 0), True),
        ("appel est en", (0, 0), True),  # 12 characters
        ("appel est e", (0, 0), False),  # 11
        ("  appel, est -- e ", (0, 0), False),  # 11 after normalisation
        ("cet appel  n'est pas enregistré", (0, 0), False),
        ("cet appel est enregistré", (0, 1), False),  # said, but elsewhere
        ("cet appel est enregistré", (1, 0), False),
        ("mon numéro orias", (1, 0), True),
        ("cet appel est enregistré", (0, 2), False),
        ("cet appel est enregistré", (2, 0), False),
        ("mon numéro orias", (-1, 0), False),  # no counting from the end
        ("vous pouvez vous y opposer", (0, -1), False),
        ("", (0, 0), False),
        ("………………………………", (0, 0), False),
    ],
)
def test_a_quotation_holds_where_it_was_said(texte: str, at: tuple[int, int], holds: bool) -> None:
    gated = gate(finding(point(P, citation(texte, at))), 10, CALLS, ON).finding
    assert gated.points[0].statut is (P if holds else A)
    assert [kept.texte for kept in gated.points[0].citations] == ([texte] if holds else [])


@pytest.mark.parametrize(
    ("least", "texte", "holds"),
    [
        (7, "bonjour", True),
        (8, "bonjour", False),
        (1, "?", False),
        (0, "", False),
        (0, "bonjour", False),
    ],
)
def test_the_least_length_of_a_quotation_is_a_rule_and_none_means_the_usual(
    least: int, texte: str, holds: bool
) -> None:
    gated = gate(
        finding(point(P, citation(texte))), 10, CALLS, GatingOptions(min_quote_characters=least)
    ).finding
    assert (gated.points[0].statut is P) == holds


@pytest.mark.parametrize(
    ("before", "statut", "citations", "note"),
    [
        (point(P, REAL), P, 1, ""),
        (point(H, REAL), H, 1, ""),
        (point(P, INVENTED, REAL), P, 1, ""),
        (point(P), A, 0, f" {UNPROVEN}"),
        (point(P, INVENTED), A, 0, f" {UNPROVEN}"),
        (point(H, INVENTED), A, 0, f" {UNPROVEN}"),
        (point(A, REAL), A, 0, ""),
        (point(N, REAL), N, 0, ""),
        (point(A), A, 0, ""),
    ],
)
def test_a_point_is_worth_what_its_citations_prove(
    before: ControlPoint, statut: Statut, citations: int, note: str
) -> None:
    after = gate(finding(before), 10, CALLS, ON).finding.points[0]
    assert (after.statut, len(after.citations)) == (statut, citations)
    assert after.commentaire == f"Vu.{note}"
    assert after.minutages == (("00:12",) if citations else ())


def test_a_note_stands_alone_where_there_was_no_comment() -> None:
    assert (
        gate(finding(point(P, commentaire="")), 10, CALLS, ON).finding.points[0].commentaire
        == UNPROVEN
    )


def test_citations_that_stay_know_their_recording_and_not_what_the_model_made_up() -> None:
    kept = (
        gate(finding(point(P, citation("mon numéro orias", (1, 0)))), 10, CALLS, ON)
        .finding.points[0]
        .citations[0]
    )
    assert (kept.recording_date, kept.recording_time, kept.call_id) == (
        "03/02/2026",
        "11:14",
        "call_1",
    )
    assert kept.recording_url == "https://audio.example/1.mp3"
    assert (kept.texte, kept.recording_index, kept.chunk_index) == ("mon numéro orias", 1, 0)


def test_what_a_recording_does_not_say_of_itself_is_not_applicable() -> None:
    bare = Timeline((replace(CALLS.recordings[0], date="", time="", url=""),))
    kept = gate(finding(point(P, REAL)), 10, bare, ON).finding.points[0].citations[0]
    assert (kept.recording_date, kept.recording_time, kept.recording_url) == ("N/A", "N/A", "N/A")
    assert kept.call_id == "call_0"


def test_the_minutages_of_a_step_are_those_of_its_points() -> None:
    late = citation("mon numéro orias", (1, 0), minutage="04:05")
    gated = gate(
        finding(point(P, late, REAL), point(P, INVENTED), point(H, REAL)), 10, CALLS, ON
    ).finding
    assert gated.minutages == ("04:05", "00:12")


def test_the_example_of_the_reference() -> None:
    before = finding(point(P, REAL), point(P, citation("bonjour,")), point(N))
    gated = gate(before, 10, CALLS, ON)
    after = gated.finding
    assert [each.statut for each in after.points] == [P, A, N]
    assert (after.score, after.conforme, after.niveau_conformite) == (
        5,
        Conforme.PARTIEL,
        Niveau.ACCEPTABLE,
    )
    assert after.commentaire_global.startswith("Bien. [Auto-check] Score ramené de 10 à 5")
    assert gated.stats == GatingStats(2, 1, 1, step_score_reduced=True, step_conforme_adjusted=True)


@pytest.mark.parametrize(
    ("proven", "of", "weight", "score", "after"),
    [
        (1, 1, 10, 10, 10),
        (1, 2, 10, 10, 5),
        (1, 2, 10, 5, 5),
        (1, 2, 10, 4, 4),
        (1, 2, 5, 5, 3),  # 2.5
        (1, 2, 10, 14, 5),
        (1, 1, 10, 14, 14),  # too high, but not for lack of proof; scoring counts 10
        (0, 1, 10, 1, 0),
        (0, 1, 10, 0, 0),
    ],
)
def test_a_score_is_replaced_only_by_a_lower_one(
    proven: int, of: int, weight: int, score: int, after: int
) -> None:
    points = [point(P, REAL)] * proven + [point(A)] * (of - proven)
    gated = gate(finding(*points, score=score), weight, CALLS, ON)
    assert gated.finding.score == after
    assert gated.stats.step_score_reduced == (after < score)
    assert ("[Auto-check]" in gated.finding.commentaire_global) == (after < score)


C, PC, NC = Conforme.CONFORME, Conforme.PARTIEL, Conforme.NON_CONFORME


@pytest.mark.parametrize(
    ("proven", "of", "conforme", "after", "niveau"),
    [
        (20, 20, C, C, Niveau.REJET),
        (19, 20, C, C, Niveau.REJET),
        (17, 20, C, C, Niveau.REJET),  # 0.85
        (16, 20, C, PC, Niveau.ACCEPTABLE),
        (8, 20, C, PC, Niveau.ACCEPTABLE),  # 0.4
        (7, 20, C, NC, Niveau.INSUFFISANT),
        (0, 20, C, NC, Niveau.INSUFFISANT),
        (20, 20, PC, PC, Niveau.REJET),
        (8, 20, PC, PC, Niveau.REJET),
        (7, 20, PC, NC, Niveau.INSUFFISANT),
        (20, 20, NC, NC, Niveau.REJET),
        (0, 20, NC, NC, Niveau.REJET),
    ],
)
def test_a_stricter_verdict_is_taken_and_the_niveau_with_it(
    proven: int, of: int, conforme: Conforme, after: Conforme, niveau: Niveau
) -> None:
    points = [point(P, REAL)] * proven + [point(A)] * (of - proven)
    gated = gate(finding(*points, conforme=conforme, niveau=Niveau.REJET), 10, CALLS, ON)
    assert (gated.finding.conforme, gated.finding.niveau_conformite) == (after, niveau)
    assert gated.stats.step_conforme_adjusted == (after is not conforme)


def test_nothing_applicable_means_nothing_lacking() -> None:
    before = finding(point(N, REAL), score=9)
    after = gate(before, 10, CALLS, ON).finding
    assert (after.score, after.conforme, after.points[0].citations) == (9, C, ())


def test_switched_off_it_only_says_which_recording_is_quoted() -> None:
    elsewhere = citation("cet appel est enregistré", (7, 0))
    before = finding(point(P, INVENTED), point(A, elsewhere))
    gated = gate(before, 10, CALLS, OFF)
    known, unknown = gated.finding.points[0].citations[0], gated.finding.points[1].citations[0]
    assert (known.texte, known.call_id) == (INVENTED.texte, "call_0")
    assert (unknown.recording_date, unknown.recording_url, unknown.call_id) == ("N/A", "N/A", None)
    pairs = zip(gated.finding.points, before.points, strict=True)
    as_before = tuple(replace(now, citations=was.citations) for now, was in pairs)
    assert replace(gated.finding, points=as_before) == before
    assert gated.stats == GatingStats(2)


def test_what_was_done_to_a_step_twice_adds_up() -> None:
    first, again = (
        GatingStats(5, 2, 1, step_score_reduced=True),
        GatingStats(3, 1, 0, step_conforme_adjusted=True),
    )
    assert first + again == GatingStats(
        8, 3, 1, step_score_reduced=True, step_conforme_adjusted=True
    )


rules = st.builds(GatingOptions, enabled=st.booleans(), min_quote_characters=st.integers(-1, 20))


@given(findings, weights, timelines, rules)
def test_gating_twice_is_gating_once(
    step: StepFinding, weight: int, timeline: Timeline, rules: GatingOptions
) -> None:
    once = gate(step, weight, timeline, rules).finding
    again = gate(once, weight, timeline, rules)
    assert again.finding == once
    assert again.stats == GatingStats(once.citations)


@given(findings, weights, timelines, rules)
def test_gating_raises_nothing(
    step: StepFinding, weight: int, timeline: Timeline, rules: GatingOptions
) -> None:
    after = gate(step, weight, timeline, rules).finding
    strict_first = [NC, PC, C]
    assert after.score <= step.score
    assert strict_first.index(after.conforme) <= strict_first.index(step.conforme)
    assert [now.point for now in after.points] == [was.point for was in step.points]
    for now, was in zip(after.points, step.points, strict=True):
        assert now.statut is was.statut or (now.statut is A and was.statut in {P, H})


@given(findings, weights, timelines)
def test_after_gating_only_proven_points_are_met_and_no_citation_is_false(
    step: StepFinding, weight: int, timeline: Timeline
) -> None:
    for each in gate(step, weight, timeline, ON).finding.points:
        assert bool(each.citations) == (each.statut in {P, H})
        for quoted in each.citations:
            chunk = timeline.chunk(quoted.recording_index, quoted.chunk_index)
            assert chunk is not None
            said, quote = (
                "".join(re.split("speaker_[01]: ", text))
                for text in (chunk.full_text, quoted.texte)
            )
            assert len(normalise(quote)) >= 12
            assert normalise(quote) in normalise(said)
