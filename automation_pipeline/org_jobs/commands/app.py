"""The command group `automation org-jobs`."""

from automation_pipeline.cli.groups import command_group
from automation_pipeline.org_jobs.commands import jobs, organisations, records, schedules
from automation_pipeline.org_jobs.commands import organisations as hosts

app = command_group("Manage the jobs of organisations: schedules, queues and results.")
app.add_typer(schedules.app, name="schedules")
app.command("list")(jobs.list_)
for command in (jobs.show, jobs.create, jobs.cancel, jobs.retry, jobs.watch, jobs.log):
    app.command()(command)
app.command("queues")(jobs.queues_)
app.add_typer(organisations.types_app, name="types")
app.add_typer(records.backfills_app, name="backfills")
app.add_typer(organisations.orgs_app, name="orgs")
app.add_typer(hosts.hosts_app, name="hosts")
app.add_typer(hosts.servers_app, name="servers")
app.command()(records.alerts)
app.command("audit-log")(records.audit_log_)
