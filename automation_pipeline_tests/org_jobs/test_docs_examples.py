"""The schedule, commands, fields and policies in docs/org-jobs.md exist."""

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from automation_pipeline.cli.main import app
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.org_jobs.models.job_types import checked_payload, job_type
from automation_pipeline.org_jobs.models.jobs import MisfirePolicy
from automation_pipeline.org_jobs.models.schedules import OrgSchedule
from automation_pipeline.org_jobs.rules.schedules import read_schedule

PAGE = (Path(__file__).parents[2] / "docs" / "org-jobs.md").read_text(encoding="utf-8")


def test_the_documented_schedule_is_valid() -> None:
    [block] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    given = json.loads(block)
    schedule = read_schedule(given)
    assert checked_payload(job_type(schedule.job_type), given["payload"])["graceSeconds"] == 60


def test_every_policy_is_documented() -> None:
    assert [word for word in (*MisfirePolicy, *OverlapPolicy) if f"`{word}`" not in PAGE] == []


def test_every_documented_field_exists() -> None:
    fields = {field.alias for field in OrgSchedule.model_fields.values()} | {
        "maxRetries",
        "backoffMs",
        "backoffType",
    }
    of_schedules = PAGE.partition("## Secrets")[0]
    named = set(re.findall(r"`([a-z]+[A-Z][A-Za-z]*)`", of_schedules)) - {"maxRunning"}
    assert named - fields == set()


def test_every_documented_command_exists() -> None:
    commands = set(re.findall(r"`?automation org-jobs ((?:[a-z-]+ ?){1,2})", PAGE))
    for command in sorted(commands):
        shown = CliRunner().invoke(app, ["org-jobs", *command.split(), "--help"])
        assert shown.exit_code == 0, command
