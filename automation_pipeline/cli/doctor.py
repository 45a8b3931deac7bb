"""`automation doctor`: is everything there that the system needs? One line each; what is looked at is in `vitals`."""

import typer
from rich.text import Text

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.vitals.finding import State

COLOURS = {State.OK: "green", State.NOT_SET: "dim", State.FAILED: "red"}


def doctor(*, as_json: AsJson = False) -> None:
    """Check the database, Redis, the CRM, speech-to-text, the language model, the shop, the company registries, the
    mail server, Pusher, Dagster's definitions and daemon, and who may use the HTTP API. Exit 1 if something fails
    that is required: what is configured is. With --api it is the other machine that looks, and tells.
    """
    findings = desk().examine()
    if as_json:
        print_json({"checks": [vars(finding) for finding in findings]})
    else:
        for finding in findings:
            screen.print(Text(f"{finding.state:<8}", COLOURS[finding.state]) + f" {finding.name:<9} {finding.detail}")
    if any(finding.is_trouble for finding in findings):
        raise typer.Exit(1)
