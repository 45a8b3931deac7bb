"""Stored audits for tests of queries."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import select

from automation_pipeline.audits.models.configs import config_document, parse_config
from automation_pipeline.audits.tables import AuditRow, ConfigSnapshotRow
from automation_pipeline.fiches.queries.mirror import save_recordings
from automation_pipeline.fiches.tables import INFORMATION, FicheCacheRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline_tests.audits.configurations import add, document, with_grade
from automation_pipeline_tests.fakes.crm import recording

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
DETAILS: dict[str, Any] = {
    "date_insertion": "", "nombre_acces": 0, "dernier_acces": "", "agence_id": "1", "agence_nom": "",
    "attribution_user_nom": "", "provenance_id": "", "provenance_nom": "", "refus_demarchage": False,
    "exception_demarchage": False, "nombre_ouverture_mails": 0, "nombre_visualisation_pages": 0,
    "ferme_espace_prospect": False, "desinscription_mail": False, "corbeille": False, "archive": False, "modules": [],
}  # fmt: skip
COMPLETED: dict[str, Any] = {
    "status": "completed",
    "niveau": "BON",
    "is_compliant": True,
    "score_percentage": Decimal(80),
}


class Archive:
    """`put` inserts an audit and returns its id. Each audit is created an hour after the previous one."""

    def __init__(self, database: Database, configs: int = 2) -> None:
        self.database = database
        self.configs = [add(database, f"Config {number}") for number in range(1, configs + 1)]
        self._count = 0

    def put(
        self,
        fiche_id: str,
        *,
        calls: int = 0,
        attributed: tuple[str, str] | None = None,
        **fields: Any,
    ) -> int:
        """Fields with the prefix `of_fiche_` are columns of the fiche's row; `attributed` is the groupe and
        the user in its details."""
        of_fiche = {
            name.removeprefix("of_fiche_"): fields.pop(name)
            for name in list(fields)
            if name.startswith("of_fiche_")
        }
        with self.database.transaction() as session:
            fiche = self._fiche(session, fiche_id, of_fiche, attributed)
            if calls:
                save_recordings(
                    session, {fiche_id: [recording(f"{fiche_id}{n}") for n in range(calls)]}
                )
            self._count += 1
            row: dict[str, Any] = {
                "tracking_id": f"t-{self._count}", "fiche_cache_id": fiche, "audit_config_id": self.configs[0],
                "config_fingerprint": "x", "niveau": "PENDING", "critical_passed": 0, "critical_total": 0,
                "total_steps": 1, "status": "running", "version": self._count, "is_latest": True, "use_rlm": False,
                "transcript_mode": "prompt", "fence": 1, "touched_at": NOW,
                "created_at": NOW + timedelta(hours=self._count), **fields,
            }  # fmt: skip
            audit = AuditRow(**with_grade(row))
            session.add(audit)
            session.flush()
            return audit.id

    def _fiche(
        self,
        session: Session,
        fiche_id: str,
        fields: dict[str, Any],
        attributed: tuple[str, str] | None,
    ) -> int:
        known = session.scalar(select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == fiche_id))
        if known is not None:
            return known
        if session.get(ConfigSnapshotRow, "x") is None:
            session.add(
                ConfigSnapshotRow(
                    fingerprint="x", document=config_document(parse_config(document()))
                )
            )
        row = FicheCacheRow(
            fiche_id=fiche_id, **{"raw_data": {}, "fetched_at": NOW, "expires_at": NOW, **fields}
        )
        session.add(row)
        session.flush()
        if attributed is not None:
            groupe, user = attributed
            session.execute(
                INFORMATION.insert().values(
                    fiche_cache_id=row.id, groupe=groupe, attribution_user_id=user, **DETAILS
                )
            )
        return row.id
