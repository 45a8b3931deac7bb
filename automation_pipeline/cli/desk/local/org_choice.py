"""Which organisation something is made for: the one that is named, or the only one that there is."""

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE
from automation_pipeline.org_jobs.store.organisations import get_organisation, list_organisations


def chosen_org(services: Services, org_id: str | None) -> str:
    """NotFoundError for one that is not there."""
    with services.database.reading() as session:
        if org_id is not None:
            return get_organisation(session, org_id, EVERYWHERE).id
        known = list_organisations(session, EVERYWHERE, limit=2, offset=0)
    if not known:
        raise InvalidInputError("There is no organisation yet: `automation org-jobs orgs create` adds one.")
    if len(known) > 1:
        raise InvalidInputError("There are several organisations: say with --org which one it is for.")
    return known[0].id


def refuse_strange_org(services: Services, org_id: str | None) -> None:
    """NotFoundError: an empty list of an organisation that is not there would look as if all were well."""
    if org_id is not None:
        chosen_org(services, org_id)
