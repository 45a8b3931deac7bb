"""The commands of `automation org-jobs`, put together."""

from automation_pipeline.cli.groups import command_group
from automation_pipeline.org_jobs.commands import (
    backfills,
    hosts,
    job_types,
    jobs,
    records,
    schedules,
    servers,
)
from automation_pipeline.org_jobs.commands import jobs as job_deeds
from automation_pipeline.org_jobs.commands import organisations as orgs

app = command_group(
    "Do organisations' jobs: when they are due, their queues, and what became of them."
)
app.add_typer(schedules.app, name="schedules")
app.command("list")(jobs.list_)
for deed in (jobs.show, job_deeds.create, job_deeds.cancel, job_deeds.retry, job_deeds.watch):
    app.command()(deed)
for look in (jobs.log, jobs.queues):
    app.command()(look)
app.add_typer(job_types.app, name="types")
app.add_typer(backfills.app, name="backfills")
app.add_typer(orgs.app, name="orgs")
app.add_typer(hosts.app, name="hosts")
app.add_typer(servers.app, name="servers")
app.command()(records.alerts)
app.command("audit-log")(records.audit_log)
