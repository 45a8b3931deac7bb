"""Findings and timelines: examples for tables, and Hypothesis strategies."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import (
    Citation,
    Conforme,
    ControlPoint,
    Niveau,
    Statut,
    StepFinding,
    Timeline,
    TimelineChunk,
    TimelineRecording,
)


def citation(texte: str, at: tuple[int, int] = (0, 0), minutage: str = "00:12") -> Citation:
    return Citation(
        texte=texte,
        minutage=minutage,
        minutage_secondes=12.4,
        speaker="speaker_0",
        recording_index=at[0],
        chunk_index=at[1],
        recording_url="https://invented.example/1.mp3",
    )


def control_point(statut: Statut, text: str = "Un point", **other: Any) -> ControlPoint:
    """A control point without comment and citations."""
    plain: dict[str, Any] = {
        "commentaire": "",
        "citations": (),
        "minutages": (),
        "erreur_transcription_notee": False,
        "variation_phonetique_utilisee": None,
    }
    return ControlPoint(point=text, statut=statut, **plain | other)


def point(
    statut: Statut, *citations: Citation, text: str = "Un point", commentaire: str = "Vu."
) -> ControlPoint:
    return control_point(
        statut, text, commentaire=commentaire, citations=citations, minutages=("09:59",)
    )


def finding(
    *points: ControlPoint,
    score: int = 10,
    conforme: Conforme = Conforme.CONFORME,
    niveau: Niveau = Niveau.EXCELLENT,
) -> StepFinding:
    return StepFinding(
        traite=True,
        conforme=conforme,
        score=score,
        niveau_conformite=niveau,
        points=points,
        commentaire_global="Bien.",
        minutages=("09:58",),
        mots_cles_trouves=("enregistré",),
        erreurs_transcription_tolerees=0,
    )


def recording(index: int, *chunks: str) -> TimelineRecording:
    return TimelineRecording(
        index=index,
        call_id=f"call_{index}",
        date="03/02/2026",
        time=f"1{index}:14",
        url=f"https://audio.example/{index}.mp3",
        duration_seconds=300,
        from_number="0612345678",
        to_number="0145678901",
        chunks=tuple(
            TimelineChunk(at, at * 30.0, at * 30.0 + 29, 1, ("speaker_0", "speaker_1"), text)
            for at, text in enumerate(chunks)
        ),
    )


def points_of(statuts: Sequence[Statut]) -> tuple[ControlPoint, ...]:
    return tuple(
        control_point(statut, f"Point {number}") for number, statut in enumerate(statuts, 1)
    )


CALL_TEXT = (
    "speaker_0: Bonjour, cet appel est enregistré.\nspeaker_1: D'accord.",
    "speaker_0: Je suis Odile Martel, de la société Exemple.",
    "",
)

timelines = st.lists(st.lists(st.sampled_from(CALL_TEXT), max_size=3), max_size=3).map(
    lambda calls: Timeline(tuple(recording(index, *chunks) for index, chunks in enumerate(calls)))
)

_quotes = st.one_of(
    st.sampled_from(
        [
            "cet appel est enregistré",
            "CET APPEL EST ENREGISTRE !",
            "Je suis Odile Martel",
            "speaker_1: D'accord.",
            "est enregistré. D'accord.",
            "bonjour",
            "...",
        ]
    ),
    st.text(max_size=20),
)
citations = st.builds(
    citation,
    _quotes,
    st.tuples(st.integers(-1, 3), st.integers(-1, 3)),
    st.sampled_from(["00:12", "00:42", ""]),
)
texts = st.one_of(
    st.sampled_from(["Nom donné", "1. nom donne", "Appel enregistré", ""]), st.text(max_size=12)
)
control_points = st.builds(
    ControlPoint,
    point=texts,
    statut=st.sampled_from(Statut),
    commentaire=st.text(max_size=5),
    citations=st.lists(citations, max_size=3).map(tuple),
    minutages=st.lists(st.sampled_from(["00:12", "05:00"]), max_size=2).map(tuple),
)
findings = st.builds(
    StepFinding,
    traite=st.booleans(),
    conforme=st.sampled_from(Conforme),
    score=st.integers(-2, 15),
    niveau_conformite=st.sampled_from(Niveau),
    points=st.lists(control_points, max_size=6).map(tuple),
    commentaire_global=st.text(max_size=5),
)
weights = st.integers(0, 10)
