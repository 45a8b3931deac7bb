"""Tables of the CRM mirror: the fiche and its recordings in `core`, the days in `days`, the details in `sections`.

Counts of recordings are derived, never stored: stored hints drift.
"""

from automation_pipeline.fiches.tables.core import FicheCache, RecordingRow
from automation_pipeline.fiches.tables.days import SalesDayRow
from automation_pipeline.fiches.tables.jobs import FetchDeliveryRow, FetchJobRow
from automation_pipeline.fiches.tables.sections_contracts import (
    AutreContratRow,
    ElementsSouscriptionRow,
    FormuleDetailRow,
    FormuleRow,
    GammeRow,
    TarificationRow,
)
from automation_pipeline.fiches.tables.sections_follow_up import (
    AlerteRow,
    CommentaireRow,
    DocumentRow,
    MailRow,
    RawSectionRow,
    ReclamationRow,
    RendezVousRow,
)
from automation_pipeline.fiches.tables.sections_people import (
    ConjointRow,
    EnfantRow,
    EtiquetteRow,
    InformationRow,
    ProspectRow,
)

__all__ = [
    "AlerteRow",
    "AutreContratRow",
    "CommentaireRow",
    "ConjointRow",
    "DocumentRow",
    "ElementsSouscriptionRow",
    "EnfantRow",
    "EtiquetteRow",
    "FetchDeliveryRow",
    "FetchJobRow",
    "FicheCache",
    "FormuleDetailRow",
    "FormuleRow",
    "GammeRow",
    "InformationRow",
    "MailRow",
    "ProspectRow",
    "RawSectionRow",
    "ReclamationRow",
    "RecordingRow",
    "RendezVousRow",
    "SalesDayRow",
    "TarificationRow",
]
