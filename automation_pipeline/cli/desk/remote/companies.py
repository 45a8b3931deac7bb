"""Companies by the API, whose answers are those of a contract of its own."""

from collections.abc import Callable, Mapping, Sequence

from automation_pipeline.cli.desk.enrichment_ports import AskedCompany
from automation_pipeline.cli.desk.remote.api import Api, Document, read
from automation_pipeline.enrichment.domain.views import RequestView
from automation_pipeline.enrichment.domain.vocabulary import Asked
from automation_pipeline.enrichment.store.followed import Standing

PATH = "/v1/requests"


class RemoteCompanies:
    # Each is tried at once over there, for a second.
    width = 8

    def __init__(self, api: Api) -> None:
        self._api = api

    def request(self, given: Mapping[str, object], *, force: bool) -> AskedCompany:
        """Over there a refresh that is forced is one by hand: once in 15 minutes a company."""
        asked = _asked(self._api.post(PATH, given))
        if force and asked.outcome is Asked.CACHE_HIT:
            asked = _asked(self._api.post(f"{PATH}/{asked.request_id}:refresh-company"))
        return asked

    def work(self, job_ids: Sequence[int], on_end: Callable[[], object]) -> None:
        """They do it over there."""

    def followed(self, request_ids: Sequence[int]) -> Sequence[Standing]:
        return [_standing(_view(self._api.get(f"{PATH}/{request_id}"))) for request_id in request_ids]


def _asked(document: Document) -> AskedCompany:
    view = _view(document)
    return read(
        lambda: AskedCompany(
            request_id=view.request.id,
            outcome=Asked(str(document["outcome"])),
            job_id=view.job_id,
            warnings=view.request.warnings,
        )
    )


def _view(document: Document) -> RequestView:
    known = {name: value for name, value in document.items() if name in RequestView.model_fields}
    return read(lambda: RequestView.model_validate(known))


def _standing(view: RequestView) -> Standing:
    return Standing(
        request_id=view.request.id,
        siren=view.request.company_siren,
        siret=view.request.siret,
        status=view.request.enrichment_status,
        error=view.request.enrichment_error,
        is_running=view.enrichment_running,
        company=view.company,
        warnings=view.request.warnings,
    )
