"""Verdicts: evidence gating, scores of steps, scores of audits."""

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import (
    Conforme,
    ControlPoint,
    GatingOptions,
    GatingStats,
    Niveau,
    Statut,
    StepFinding,
    StoredStep,
    Timeline,
)
from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.rules import verdicts
from automation_pipeline.audits.rules.tools import normalise
from automation_pipeline.audits.rules.verdicts import (
    UNPROVEN,
    derive_verdict,
    gate,
    is_quoted,
    met_ratio,
    minutages_of,
    round_half_up,
    score_audit,
)
from automation_pipeline_tests.audits.rules.strategies import (
    citation,
    control_points,
    finding,
    findings,
    point,
    points_of,
    recording,
    timelines,
    weights,
)
from automation_pipeline_tests.cases import every_case

C, PC, NC = Conforme.CONFORME, Conforme.PARTIEL, Conforme.NON_CONFORME


def step(
    weight: int, score: int, conforme: Conforme = C, *, critical: bool = False, traite: bool = True
) -> StoredStep:
    return StoredStep(
        position=1,
        name="Greeting",
        severity="HIGH",
        is_critical=critical,
        weight=weight,
        usage=Usage(),
        finding=replace(finding(score=score, conforme=conforme, niveau=Niveau.BON), traite=traite),
        stats=GatingStats(0),
    )


def scored(earned: int, of: int) -> list[StoredStep]:
    return [step(1, 1)] * earned + [step(1, 0, NC)] * (of - earned)


@every_case(
    ("earned", "of", "percentage", "niveau", "compliant"),
    [
        (10, 10, "100.00", Niveau.EXCELLENT, True),
        (9, 10, "90.00", Niveau.EXCELLENT, True),
        (8999, 10_000, "89.99", Niveau.BON, True),
        (17_999, 20_000, "90.00", Niveau.BON, True),  # 89.995: the niveau uses the unrounded value
        (3, 4, "75.00", Niveau.BON, True),
        (14_999, 20_000, "75.00", Niveau.ACCEPTABLE, True),
        (7499, 10_000, "74.99", Niveau.ACCEPTABLE, True),
        (6, 10, "60.00", Niveau.ACCEPTABLE, True),
        (11_999, 20_000, "60.00", Niveau.INSUFFISANT, False),
        (5999, 10_000, "59.99", Niveau.INSUFFISANT, False),
        (0, 10, "0.00", Niveau.INSUFFISANT, False),
        (103, 125, "82.40", Niveau.BON, True),
        (2, 3, "66.67", Niveau.ACCEPTABLE, True),
        (1, 3, "33.33", Niveau.INSUFFISANT, False),
        (1, 800, "0.13", Niveau.INSUFFISANT, False),  # 0.125: a half goes up
    ],
)
def test_the_niveau_depends_on_the_unrounded_percentage(
    earned: int, of: int, percentage: str, niveau: Niveau, compliant: bool
) -> None:
    result = score_audit(scored(earned, of))
    assert (str(result.score_percentage), result.niveau, result.is_compliant) == (
        percentage,
        niveau,
        compliant,
    )
    assert (result.earned, result.total_weight) == (earned, of)


@every_case(
    ("verdicts", "passed", "niveau"),
    [
        ([C], 1, Niveau.EXCELLENT),
        ([PC], 0, Niveau.REJET),
        ([NC], 0, Niveau.REJET),
        ([C, C], 2, Niveau.EXCELLENT),
        ([C, PC], 1, Niveau.REJET),
        ([C, NC], 1, Niveau.REJET),
        ([], 0, Niveau.EXCELLENT),
    ],
)
def test_every_critical_step_must_be_conforme_whatever_the_score(
    verdicts: list[Conforme], passed: int, niveau: Niveau
) -> None:
    steps = [step(5, 5, NC), *(step(5, 5, verdict, critical=True) for verdict in verdicts)]
    result = score_audit(steps)
    assert (result.critical_passed, result.critical_total) == (passed, len(verdicts))
    assert (result.niveau, result.score_percentage) == (niveau, Decimal(100))
    assert result.is_compliant == (niveau is not Niveau.REJET)


def test_a_low_score_is_not_compliant_despite_passed_critical_steps() -> None:
    result = score_audit([step(1, 1, critical=True), step(9, 0, NC)])
    assert (result.niveau, result.is_compliant) == (Niveau.INSUFFISANT, False)


def test_a_rejected_audit_stays_rejected_at_any_score() -> None:
    assert score_audit([step(5, 0, NC, critical=True)]).niveau is Niveau.REJET


@every_case(
    ("scores", "earned"),
    [([(5, 12)], 5), ([(5, -3)], 0), ([(5, -3), (5, 9)], 5), ([(5, 5), (0, 4)], 5)],
)
def test_the_score_of_a_step_is_between_zero_and_its_weight(
    scores: list[tuple[int, int]], earned: int
) -> None:
    assert score_audit([step(weight, score) for weight, score in scores]).earned == earned


@every_case("steps", [[], [step(0, 0)], [step(0, 3)]])
def test_without_weight_the_score_is_zero(steps: list[StoredStep]) -> None:
    result = score_audit(steps)
    assert (result.score_percentage, result.total_weight) == (Decimal(0), 0)
    assert (result.niveau, result.is_compliant) == (Niveau.INSUFFISANT, False)


def test_without_weight_a_critical_step_still_rejects() -> None:
    assert score_audit([step(0, 0, PC, critical=True)]).niveau is Niveau.REJET


def test_steps_that_were_not_dealt_with_are_counted_as_failed_and_keep_their_weight() -> None:
    result = score_audit([step(5, 5), step(5, 0, NC, traite=False), step(10, 10)])
    assert (result.successful_steps, result.failed_steps) == (2, 1)
    assert result.score_percentage == Decimal(75)


def test_a_failed_critical_step_rejects() -> None:
    assert (
        score_audit([step(9, 9), step(1, 0, NC, critical=True, traite=False)]).niveau
        is Niveau.REJET
    )


_steps = st.builds(
    step,
    st.integers(0, 10),
    st.integers(-5, 20),
    st.sampled_from(Conforme),
    critical=st.booleans(),
    traite=st.booleans(),
)


@given(st.lists(_steps, max_size=20))
def test_every_audit_has_a_percentage_and_a_niveau(steps: list[StoredStep]) -> None:
    result = score_audit(steps)
    assert Decimal(0) <= result.score_percentage <= Decimal(100)
    assert 0 <= result.earned <= result.total_weight
    assert result.successful_steps + result.failed_steps == len(steps)
    assert (result.niveau is Niveau.REJET) == (result.critical_passed < result.critical_total)


P, H, A, N = Statut.PRESENT, Statut.PARTIEL, Statut.ABSENT, Statut.NON_APPLICABLE


@every_case(
    ("statuts", "ratio"),
    [
        ([], 1),
        ([N, N], 1),
        ([P], 1),
        ([H], Fraction(1, 2)),
        ([A], 0),
        ([P, A], Fraction(1, 2)),
        ([P, H, A], Fraction(1, 2)),
        ([P, A, N], Fraction(1, 2)),
        ([P, P, H], Fraction(5, 6)),
    ],
)
def test_the_ratio_is_of_the_applicable_points(statuts: list[Statut], ratio: Fraction) -> None:
    assert met_ratio(points_of(statuts)) == ratio


@every_case(
    ("value", "rounded"),
    [("0", 0), ("0.49", 0), ("0.5", 1), ("1.5", 2), ("2.5", 3), ("2.4999", 2), ("4.5", 5)],
)
def test_scores_round_half_up(value: str, rounded: int) -> None:
    assert round_half_up(Fraction(value)) == rounded


@every_case(
    ("statuts", "weight", "score", "conforme", "niveau"),
    [
        ([], 10, 10, Conforme.CONFORME, Niveau.EXCELLENT),
        ([P] * 20, 10, 10, Conforme.CONFORME, Niveau.EXCELLENT),
        ([P] * 19 + [A], 10, 10, Conforme.CONFORME, Niveau.EXCELLENT),  # 0.95
        ([P] * 18 + [H, A], 10, 9, Conforme.CONFORME, Niveau.BON),  # 0.925
        ([P] * 17 + [A] * 3, 10, 9, Conforme.CONFORME, Niveau.BON),  # 0.85
        ([P] * 16 + [H] + [A] * 3, 10, 8, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 0.825
        ([P] * 2 + [A] * 3, 10, 4, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 0.4
        ([P] * 7 + [H] + [A] * 12, 10, 4, Conforme.NON_CONFORME, Niveau.INSUFFISANT),  # 0.375
        ([A, A], 10, 0, Conforme.NON_CONFORME, Niveau.INSUFFISANT),
        ([P, A], 5, 3, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 2.5
        ([P, A], 9, 5, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 4.5
        ([P], 0, 0, Conforme.CONFORME, Niveau.EXCELLENT),
    ],
)
def test_score_and_verdicts_follow_from_the_ratio(
    statuts: list[Statut], weight: int, score: int, conforme: Conforme, niveau: Niveau
) -> None:
    result = derive_verdict(points_of(statuts), weight)
    assert (result.score, result.conforme, result.niveau) == (score, conforme, niveau)


@given(st.lists(control_points, max_size=8), weights)
def test_a_derived_score_is_within_the_weight(points: list[ControlPoint], weight: int) -> None:
    assert 0 <= derive_verdict(points, weight).score <= weight


def test_minutages_of_citations_are_distinct_and_ordered() -> None:
    points = (
        point(P, citation("b", minutage="00:40"), citation("a")),
        point(A),
        point(P, citation("c"), citation("d", minutage="00:05")),
    )
    assert minutages_of(points) == ("00:40", "00:12", "00:05")


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
def test_normalisation_keeps_only_words(text: str, words: str) -> None:
    assert normalise(text) == words


@given(st.text())
def test_normalisation_is_idempotent(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    ("texte", "at", "is_valid"),
    [
        ("cet appel est enregistré", (0, 0), True),
        ("« Cet appel est enregistre ! »", (0, 0), True),
        ("appel est en", (0, 0), True),  # 12 characters
        ("appel est e", (0, 0), False),  # 11
        ("  appel, est -- e ", (0, 0), False),  # 11 after normalisation
        ("cet appel  n'est pas enregistré", (0, 0), False),
        ("cet appel est enregistré", (0, 1), False),  # present in another chunk
        ("cet appel est enregistré", (1, 0), False),
        ("mon numéro orias", (1, 0), True),
        ("cet appel est enregistré", (0, 2), False),
        ("cet appel est enregistré", (2, 0), False),
        ("mon numéro orias", (-1, 0), False),  # negative indexes are invalid
        ("vous pouvez vous y opposer", (0, -1), False),
        ("", (0, 0), False),
        ("………………………………", (0, 0), False),
    ],
)
def test_a_quotation_is_valid_in_the_chunk_that_contains_it(
    texte: str, at: tuple[int, int], is_valid: bool
) -> None:
    gated = gate(finding(point(P, citation(texte, at))), 10, CALLS, ON).finding
    assert gated.points[0].statut is (P if is_valid else A)
    assert [kept.texte for kept in gated.points[0].citations] == ([texte] if is_valid else [])


@pytest.mark.parametrize(
    ("least", "texte", "is_valid"),
    [
        (7, "bonjour", True),
        (8, "bonjour", False),
        (1, "?", False),
        (0, "", False),
        (0, "bonjour", False),
    ],
)
def test_a_quotation_needs_the_configured_or_default_length(
    least: int, texte: str, is_valid: bool
) -> None:
    gated = gate(
        finding(point(P, citation(texte))), 10, CALLS, GatingOptions(min_quote_characters=least)
    ).finding
    assert (gated.points[0].statut is P) == is_valid


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
def test_a_point_without_valid_citations_is_downgraded(
    before: ControlPoint, statut: Statut, citations: int, note: str
) -> None:
    after = gate(finding(before), 10, CALLS, ON).finding.points[0]
    assert (after.statut, len(after.citations)) == (statut, citations)
    assert after.commentaire == f"Vu.{note}"
    assert after.minutages == (("00:12",) if citations else ())


def test_without_a_comment_the_gating_note_is_the_comment() -> None:
    assert (
        gate(finding(point(P, commentaire="")), 10, CALLS, ON).finding.points[0].commentaire
        == UNPROVEN
    )


def test_valid_citations_get_the_metadata_of_their_recording() -> None:
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


def test_unknown_recording_metadata_is_not_applicable() -> None:
    bare = Timeline((replace(CALLS.recordings[0], date="", time="", url=""),))
    kept = gate(finding(point(P, REAL)), 10, bare, ON).finding.points[0].citations[0]
    assert (kept.recording_date, kept.recording_time, kept.recording_url) == ("N/A", "N/A", "N/A")
    assert kept.call_id == "call_0"


def test_the_minutages_of_a_step_come_from_valid_citations() -> None:
    late = citation("mon numéro orias", (1, 0), minutage="04:05")
    gated = gate(
        finding(point(P, late, REAL), point(P, INVENTED), point(H, REAL)), 10, CALLS, ON
    ).finding
    assert gated.minutages == ("04:05", "00:12")


def test_the_documented_gating_example() -> None:
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
def test_gating_only_lowers_a_score(
    proven: int, of: int, weight: int, score: int, after: int
) -> None:
    points = [point(P, REAL)] * proven + [point(A)] * (of - proven)
    gated = gate(finding(*points, score=score), weight, CALLS, ON)
    assert gated.finding.score == after
    assert gated.stats.step_score_reduced == (after < score)
    assert ("[Auto-check]" in gated.finding.commentaire_global) == (after < score)


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
def test_gating_takes_the_stricter_verdict_and_its_niveau(
    proven: int, of: int, conforme: Conforme, after: Conforme, niveau: Niveau
) -> None:
    points = [point(P, REAL)] * proven + [point(A)] * (of - proven)
    gated = gate(finding(*points, conforme=conforme, niveau=Niveau.REJET), 10, CALLS, ON)
    assert (gated.finding.conforme, gated.finding.niveau_conformite) == (after, niveau)
    assert gated.stats.step_conforme_adjusted == (after is not conforme)


def test_a_step_without_applicable_points_is_met() -> None:
    before = finding(point(N, REAL), score=9)
    after = gate(before, 10, CALLS, ON).finding
    assert (after.score, after.conforme, after.points[0].citations) == (9, C, ())


def test_disabled_gating_only_adds_recording_metadata() -> None:
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


def test_gating_stats_add_up() -> None:
    first, again = (
        GatingStats(5, 2, 1, step_score_reduced=True),
        GatingStats(3, 1, 0, step_conforme_adjusted=True),
    )
    assert first + again == GatingStats(
        8, 3, 1, step_score_reduced=True, step_conforme_adjusted=True
    )


rules = st.builds(GatingOptions, enabled=st.booleans(), min_quote_characters=st.integers(-1, 20))


@given(findings, weights, timelines, rules)
def test_gating_is_idempotent(
    step: StepFinding, weight: int, timeline: Timeline, rules: GatingOptions
) -> None:
    once = gate(step, weight, timeline, rules).finding
    again = gate(once, weight, timeline, rules)
    assert again.finding == once
    assert again.stats == GatingStats(once.citations)


@given(findings, weights, timelines, rules)
def test_gating_never_improves_a_verdict(
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
def test_after_gating_met_points_have_only_valid_citations(
    step: StepFinding, weight: int, timeline: Timeline
) -> None:
    for each in gate(step, weight, timeline, ON).finding.points:
        assert bool(each.citations) == (each.statut in {P, H})
        for cited in each.citations:
            chunk = timeline.chunk(cited.recording_index, cited.chunk_index)
            assert chunk is not None
            spoken, quoted = (
                "".join(re.split("speaker_[01]: ", text)) for text in (chunk.full_text, cited.texte)
            )
            assert len(normalise(quoted)) >= 12
            assert normalise(quoted) in normalise(spoken)


LINES = (
    "speaker_0: Vous êtes d'accord ?",
    "speaker_1: oui",
    "speaker_0: Très bien, je note : c'est parfait.",
    "unknown: Au revoir à vous deux",
)
LABELLED = Timeline((recording(0, "\n".join(LINES)),))


@every_case(
    ("quotation", "is_valid"),
    [
        ("speaker_1: oui", False),
        ("speaker_1 : oui", False),
        ("« SPEAKER_1: oui »", False),
        ("speaker 1 oui", False),
        ("unknown: au", False),
        ("speaker_0: speaker_1:", False),
        ("speaker_0: Vous êtes d'accord ?", True),
        ("speaker_0 : vous êtes d'accord", True),
        ("« speaker_0: vous êtes d'accord »", True),
        ("d'accord ?\nspeaker_1: oui\nspeaker_0: Très bien", True),
        ("d'accord ? speaker_1: oui speaker_0: Très bien", True),
        ("d'accord ? oui. Très bien", True),
        ("Vous êtes d'accord ? Oui", True),
        ("je note : c'est parfait", True),
        ("unknown: Au revoir à vous", True),
        ("parfait. Au revoir à vous", True),
        ("speaker_1: Vous êtes très d'accord", False),
        ("speaker_2: Vous êtes d'accord", False),
        ("oui vous êtes d'accord", False),
    ],
)
def test_speaker_labels_are_ignored_in_quotations(quotation: str, is_valid: bool) -> None:
    assert is_quoted(quotation, (0, 0), LABELLED, 12) == is_valid
    gated = gate(finding(point(Statut.PRESENT, citation(quotation))), 10, LABELLED, GatingOptions())
    assert (gated.finding.points[0].statut is Statut.PRESENT) == is_valid


def call_of(*speakers: str, text: str) -> Timeline:
    whole = recording(0, text)
    return Timeline((replace(whole, chunks=(replace(whole.chunks[0], speakers=speakers),)),))


@every_case(
    ("speakers", "text", "quotation"),
    [
        (("client",), "client: le client est content de nous", "le client est content"),
        (("client",), "client: le client est content de nous", "client: le client est content"),
        (("",), "bonjour à tous et à toutes", "bonjour à tous"),
        (("?",), "?: bonjour à tous et à toutes", "?: bonjour à tous"),
        (
            ("(x", "speaker_1", "speaker_11"),
            "speaker_11: bonjour à tous\n(x: oui",
            "bonjour à tous oui",
        ),
    ],
)
def test_speaker_labels_may_have_any_characters(
    speakers: tuple[str, ...], text: str, quotation: str
) -> None:
    assert is_quoted(quotation, (0, 0), call_of(*speakers, text=text), 12)


@every_case("indexes", [(0, 1), (1, 0), (-1, 0), (0, -1)])
def test_a_quotation_from_a_missing_chunk_is_invalid(indexes: tuple[int, int]) -> None:
    assert not is_quoted("Vous êtes d'accord", indexes, LABELLED, 12)


def test_a_chunk_is_normalised_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, normalised = LABELLED.recordings[0].chunks[0].full_text, list[str]()

    def recorded(given: str) -> str:
        normalised.append(given)
        return normalise(given)

    monkeypatch.setattr(verdicts, "normalise", recorded)
    quoted = [citation(f"je note : c'est parfait {number}") for number in range(50)]
    verdicts._spoken_chunk.cache_clear()
    for _ in range(2):  # steps of one audit
        gate(finding(point(Statut.PRESENT, *quoted)), 10, LABELLED, GatingOptions())
    assert len([given for given in normalised if len(given) > len(text) / 2]) == 1
