"""Only what somebody said is evidence: the labels of the speakers are ours."""

from dataclasses import replace

import pytest

from automation_pipeline.audits.models.audits import GatingOptions, Timeline
from automation_pipeline.audits.models.findings import Statut
from automation_pipeline.audits.rules import verdicts as speech
from automation_pipeline.audits.rules.tools import normalise
from automation_pipeline.audits.rules.verdicts import gate, was_said
from automation_pipeline_tests.audits.rules.strategies import citation, finding, point, recording
from automation_pipeline_tests.tables import every_case

LINES = (
    "speaker_0: Vous êtes d'accord ?",
    "speaker_1: oui",
    "speaker_0: Très bien, je note : c'est parfait.",
    "unknown: Au revoir à vous deux",
)
CALLS = Timeline((recording(0, "\n".join(LINES)),))


@every_case(
    ("quotation", "holds"),
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
def test_a_quotation_is_measured_and_found_without_labels(quotation: str, holds: bool) -> None:
    assert was_said(quotation, (0, 0), CALLS, 12) == holds
    gated = gate(finding(point(Statut.PRESENT, citation(quotation))), 10, CALLS, GatingOptions())
    assert (gated.finding.points[0].statut is Statut.PRESENT) == holds


def called(*speakers: str, text: str) -> Timeline:
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
def test_labels_may_be_words_and_signs_of_any_kind(
    speakers: tuple[str, ...], text: str, quotation: str
) -> None:
    assert was_said(quotation, (0, 0), called(*speakers, text=text), 12)


@every_case("place", [(0, 1), (1, 0), (-1, 0), (0, -1)])
def test_nothing_was_said_where_there_is_no_chunk(place: tuple[int, int]) -> None:
    assert not was_said("Vous êtes d'accord", place, CALLS, 12)


def test_a_chunk_is_made_into_words_once_however_often_it_is_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, read = CALLS.recordings[0].chunks[0].full_text, list[str]()

    def counted(text: str) -> str:
        read.append(text)
        return normalise(text)

    monkeypatch.setattr(speech, "normalise", counted)
    quoted = [citation(f"je note : c'est parfait {number}") for number in range(50)]
    speech._spoken_chunk.cache_clear()
    for _ in range(2):  # steps of one audit
        gate(finding(point(Statut.PRESENT, *quoted)), 10, CALLS, GatingOptions())
    assert len([text for text in read if len(text) > len(whole) / 2]) == 1
