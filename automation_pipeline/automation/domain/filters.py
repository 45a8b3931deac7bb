"""Which candidates a run is about. What is mirrored of a fiche may be old or incomplete: `early` drops only what is
known for sure to be unwanted, `authoritative` decides once the fiche's details are here."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from automation_pipeline.automation.domain.field_rules import ids_in
from automation_pipeline.automation.domain.run import Reason
from automation_pipeline.automation.domain.selection import FicheSelection


class Dropped(StrEnum):
    """Why a candidate does not become part of the run."""

    DUPLICATES = "duplicates"
    GROUPE_NOT_SELECTED = "groupe_not_selected"
    AUDITED = "audited"
    OVER_MAX_FICHES = "over_max_fiches"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Dropped.DUPLICATES: "Listed more than once",
    Dropped.GROUPE_NOT_SELECTED: "Groupe not selected",
    Dropped.AUDITED: "Already audited",
    Dropped.OVER_MAX_FICHES: "Beyond maxFiches",
}


class EmptyReason(StrEnum):
    """Why a run has no fiches."""

    NO_FICHES_MANUAL = "no_fiches_manual"
    NO_DATES = "no_dates"
    NO_FICHES_FOUND = "no_fiches_found"

    @property
    def message(self) -> str:
        return "No dates to query" if self is EmptyReason.NO_DATES else "No fiches found"


@dataclass(frozen=True)
class Candidate:
    """A fiche as it is mirrored; without more than its id, one that is not. `audited`: some audit of it is the latest
    of its configuration, however it ended."""

    fiche_id: str
    groupe: str | None = None
    audited: bool = False


@dataclass(frozen=True)
class Choice:
    """Every candidate is kept or counted under one reason; `reasons` has that of each dropped fiche, repeats apart."""

    kept: tuple[str, ...]
    dropped: Mapping[Dropped, int]
    reasons: Mapping[str, Dropped] = field(default_factory=dict[str, Dropped])


def named_ids(selection: FicheSelection) -> list[str]:
    """Those of a stored selection may lie several in one entry."""
    return ids_in(selection.fiche_ids)


def early(candidates: Sequence[Candidate], selection: FicheSelection) -> Choice:
    """In the order of the candidates; the limit is applied once, to those that are left."""
    dropped = Counter(dict.fromkeys(Dropped, 0))
    firsts = {candidate.fiche_id: candidate for candidate in reversed(candidates)}
    dropped[Dropped.DUPLICATES] = len(candidates) - len(firsts)
    wanted: list[str] = []
    reasons: dict[str, Dropped] = {}
    for fiche_id in dict.fromkeys(candidate.fiche_id for candidate in candidates):
        reason = _unwanted(firsts[fiche_id], selection)
        if reason is None:
            wanted.append(fiche_id)
        else:
            dropped[reason] += 1
            reasons[fiche_id] = reason
    kept = tuple(wanted[: selection.max_fiches])
    dropped[Dropped.OVER_MAX_FICHES] = len(wanted) - len(kept)
    reasons |= dict.fromkeys(wanted[len(kept) :], Dropped.OVER_MAX_FICHES)
    return Choice(kept, dict(dropped), reasons)


def _unwanted(candidate: Candidate, selection: FicheSelection) -> Dropped | None:
    groupe = _said(candidate.groupe)
    if selection.groupes and groupe and groupe not in _named(selection):
        return Dropped.GROUPE_NOT_SELECTED
    return Dropped.AUDITED if selection.only_unaudited and candidate.audited else None


def authoritative(
    groupe: str | None, recordings: int, selection: FicheSelection, ceiling: int
) -> tuple[Reason, str] | None:
    """Why a fiche is ignored now that its details are here, as a key and in words; None: it goes on.

    `ceiling` is how many recordings a fiche may have where the selection does not say; 0: any number.
    """
    if selection.groupes:
        told = _said(groupe)
        if not told:
            return Reason.MISSING_GROUPE, "Missing groupe"
        if told not in _named(selection):
            return Reason.GROUPE_NOT_SELECTED, f"Groupe not selected ({told})"
    most = selection.max_recordings_per_fiche or ceiling
    if most and recordings > most:
        return Reason.TOO_MANY_RECORDINGS, f"Too many recordings ({recordings} > {most})"
    if selection.only_with_recordings and recordings == 0:
        return Reason.NO_RECORDINGS, "No recordings"
    return None


def _said(groupe: str | None) -> str:
    return (groupe or "").strip()


def _named(selection: FicheSelection) -> set[str]:
    return {_said(groupe) for groupe in selection.groupes}
