"""Audits by the stages and stores."""

from collections.abc import Mapping, Sequence

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.audit_filter import AuditFilter
from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.domain.requests import Requested
from automation_pipeline.audits.stages.delete_audit import delete_audit
from automation_pipeline.audits.stages.request_audits import Asking, Filed, request_audits
from automation_pipeline.audits.stages.request_rerun import RequestedRerun, request_rerun
from automation_pipeline.audits.stages.restore_audit import restore_audit
from automation_pipeline.audits.stages.review_control_point import review_control_point
from automation_pipeline.audits.stages.review_step import review_step
from automation_pipeline.audits.store.followed import RerunStanding, followed, followed_reruns
from automation_pipeline.audits.store.listing import list_audits
from automation_pipeline.audits.store.reading import audit_document, audit_step_document
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.ports import Document, NeverBegun


class LocalAudits:
    def __init__(self, services: Services) -> None:
        self._services = services

    def request(self, fiche_ids: Sequence[str], asking: Asking) -> Filed:
        return request_audits(fiche_ids, asking, database=self._services.database, clock=self._services.clock)

    def followed(self, requested: Sequence[Requested]) -> Mapping[str, Standing | NeverBegun]:
        fiches = {one.tracking_id: one.fiche_id for one in requested}
        with self._services.database.reading() as session:
            found = followed(session, list(fiches))
        return {key: NeverBegun(fiches[key], one) if isinstance(one, str) else one for key, one in found.items()}

    def listed(self, chosen: AuditFilter) -> tuple[Sequence[Document], int]:
        with self._services.database.reading() as session:
            return list_audits(session, chosen)

    def get(self, audit_id: int) -> Document:
        with self._services.database.reading() as session:
            return audit_document(session, audit_id)

    def step(self, place: Place) -> tuple[Document, Document]:
        with self._services.database.reading() as session:
            audit = audit_document(session, place.audit_id, details=False)
            return audit_step_document(session, place), audit

    def review(self, place: Place, given: Document) -> None:
        database = self._services.database
        if place.point is None:
            review_step(place.audit_id, place.position, given, database=database)
        else:
            review_control_point(place.audit_id, place.position, place.point, given, database=database)

    def delete(self, audit_id: int) -> None:
        delete_audit(audit_id, database=self._services.database)

    def restore(self, audit_id: int) -> None:
        restore_audit(audit_id, database=self._services.database)

    def request_rerun(self, place: Place, instructions: str | None) -> RequestedRerun:
        our = self._services
        return request_rerun(place, instructions=instructions, database=our.database, clock=our.clock)

    def rerun_standing(self, rerun_id: str) -> RerunStanding:
        with self._services.database.reading() as session:
            return followed_reruns(session, [rerun_id])[rerun_id]
