"""`automation org-jobs alerts` and `audit-log`: why somebody was called, and who changed what."""

from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.listing import Limit, Offset, one_more, say, say_more
from automation_pipeline.cli.org_jobs.arguments import AfterId, OfOrg
from automation_pipeline.cli.org_jobs.records_page import print_alerts, print_entries
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document


def alerts(*, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False) -> None:
    """List the alerts, newest first: why somebody was called, and what became of the message.

    For example: automation org-jobs alerts --org acme
    """
    found = desk().org_jobs.alerts(org, one_more(limit, offset))
    if as_json:
        print_json({"alerts": [as_document(one) for one in found[:limit]], "more": len(found) > limit})
        return
    print_alerts(found[:limit])
    say_more(found, limit, offset)


def audit_log(
    *,
    org: OfOrg = None,
    entity: Annotated[
        str | None, typer.Option("--entity", help="Only changes of such things: schedule, job, organisation, host ...")
    ] = None,
    entity_id: Annotated[str | None, typer.Option("--id", help="Only changes of this one; goes with --entity.")] = None,
    limit: Limit = 50,
    after: AfterId = 0,
    as_json: AsJson = False,
) -> None:
    """Tell who changed what, when, and why.

    For example: automation org-jobs audit-log --org acme --entity host --id 2
    """
    if entity_id is not None and entity is None:
        raise InvalidInputError("--id goes with --entity.")
    found = desk().org_jobs.audit_log(org, entity=entity, entity_id=entity_id, limit=limit + 1, after_id=after)
    if as_json:
        print_json({"log": [as_document(entry) for entry in found[:limit]], "more": len(found) > limit})
        return
    print_entries(found[:limit])
    if len(found) > limit:
        say(f"There are more: --after {found[limit - 1].id} shows the next.")
