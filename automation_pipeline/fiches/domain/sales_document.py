"""A fiche of a sales list as people read it, under the CRM's own names."""

from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.domain.fiche import Recording
from automation_pipeline.fiches.domain.sales import FicheSummary

Document = dict[str, object]


def sales_document(fiche: FicheSummary, *, with_audio: bool) -> Document:
    """`with_audio` also tells where the calls can be heard."""
    return {
        "id": fiche.fiche_id,
        "cle": fiche.cle,
        "nom": fiche.nom,
        "prenom": fiche.prenom,
        "telephone": fiche.telephone,
        "telephone_2": fiche.telephone_2,
        "email": fiche.email,
        "statut": fiche.statut,
        "date_insertion": fiche.inserted_at and iso(fiche.inserted_at),
        "date_modification": fiche.modified_at and iso(fiche.modified_at),
        "recordings": [_recording(call, with_audio=with_audio) for call in fiche.recordings],
    }


def _recording(call: Recording, *, with_audio: bool) -> Document:
    return {
        "call_id": call.call_id,
        "start_time": iso(call.started_at),
        "duration_seconds": call.duration_seconds,
        "direction": call.direction,
        "from_number": call.from_number,
        "to_number": call.to_number,
        "answered": call.answered,
        "recording_url": (call.url or None) if with_audio else None,
    }
