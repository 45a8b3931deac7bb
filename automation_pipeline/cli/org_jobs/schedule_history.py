"""`automation org-jobs schedules fires|log`: what became of a schedule's times, and who changed it."""

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.listing import Limit, say
from automation_pipeline.cli.org_jobs.arguments import AfterId, ScheduleId
from automation_pipeline.cli.org_jobs.fires_page import print_fires
from automation_pipeline.cli.org_jobs.records_page import print_entries
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.core.json_model import as_document


def fires(schedule_id: ScheduleId, *, limit: Limit = 20, after: AfterId = 0, as_json: AsJson = False) -> None:
    """List the due times of a schedule: the job of each, or why there was none.

    For example: automation org-jobs schedules fires 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --limit 50
    """
    our = desk().org_jobs.schedules
    found = our.fires(str(schedule_id), limit=limit + 1, after_id=after)
    if as_json:
        print_json({"fires": [as_document(fire) for fire in found[:limit]], "more": len(found) > limit})
        return
    print_fires(found[:limit], our.get(str(schedule_id)).timezone)
    if len(found) > limit:
        say(f"There are more: --after {found[limit - 1].id} shows the next.")


def log(schedule_id: ScheduleId, *, limit: Limit = 50, after: AfterId = 0, as_json: AsJson = False) -> None:
    """Tell who changed a schedule, when, and why.

    For example: automation org-jobs schedules log 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    """
    found = desk().org_jobs.schedules.log(str(schedule_id), limit=limit + 1, after_id=after)
    if as_json:
        print_json({"log": [as_document(entry) for entry in found[:limit]], "more": len(found) > limit})
        return
    print_entries(found[:limit])
    if len(found) > limit:
        say(f"There are more: --after {found[limit - 1].id} shows the next.")


LOOKS = {"fires": fires, "log": log}
