"""`automation pricing dlq`: dead letters."""

from collections.abc import Sequence
from typing import Annotated

import typer

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import DeadLetterClient
from automation_pipeline.cli.output import (
    AsJson,
    counted,
    minute,
    one_line,
    print_fitted_table,
    print_json,
    say,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.commands.arguments import PROJECT, Project, Targets
from automation_pipeline.pricing.models.history import DeadLetter, DeadLetterReport


def dlq(
    *,
    project: Project = PROJECT,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what is worth it, run by run.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="With --retry: try those too that would fail again as things were."
        ),
    ] = False,
    acknowledge: Annotated[
        bool,
        typer.Option(
            "--acknowledge", help="Say that somebody has seen them: they raise no alert any more."
        ),
    ] = False,
    target: Targets = None,
    as_json: AsJson = False,
) -> None:
    """Report a project's dead letters: the price changes that have failed and are not tried again
    by themselves.

    For example: automation pricing dlq --project summer --retry
    """
    _check(retry=retry, force=force, acknowledge=acknowledge, target=target)
    client = open_client().pricing.dead_letters
    if retry:
        _retry(client, project, force=force, as_json=as_json)
    elif acknowledge:
        _acknowledge(client, project, target, as_json=as_json)
    elif as_json:
        print_json(as_document(client.report(project)))
    else:
        _print_report(client.report(project))


def _check(*, retry: bool, force: bool, acknowledge: bool, target: Sequence[int] | None) -> None:
    if retry and acknowledge:
        raise InvalidInputError("--retry and --acknowledge are two things: say one of them.")
    if force and not retry:
        raise InvalidInputError("--force goes with --retry.")
    if target and not acknowledge:
        raise InvalidInputError(
            "--target goes with --acknowledge: `automation pricing runs retry` tries some again."
        )


def _retry(client: DeadLetterClient, project: str, *, force: bool, as_json: bool) -> None:
    run_ids = client.retry(project, force=force)
    if as_json:
        print_json({"project": project, "run_ids": [str(run_id) for run_id in run_ids]})
    elif run_ids:
        runs = ", ".join(map(str, run_ids))
        say(f"Tried again in run {runs}: `automation pricing runs watch {run_ids[0]}` follows it.")
    else:
        say(
            "No dead letter is worth another try as things are: remove the cause, then say --retry --force."
        )


def _acknowledge(
    client: DeadLetterClient, project: str, target: Sequence[int] | None, *, as_json: bool
) -> None:
    count = client.acknowledge(project, target or None)
    if as_json:
        print_json({"project": project, "acknowledged": count})
    else:
        say(f"{counted(count, 'dead letter')} of {project} acknowledged.")


def _print_report(report: DeadLetterReport) -> None:
    if not report.total_failed:
        say(f"Project {report.project_id} has no dead letter.")
        return
    columns = ("target", "run", "variant", "failed (UTC)", "reason", "worth a retry", "error")
    print_fitted_table(
        columns, map(_letter, report.entries), texts={"variant", "worth a retry", "error"}
    )
    say(
        f"{report.total_failed} failed: {report.retryable} worth another try, {report.stale} older than a day. "
        f"By reason: {', '.join(f'{count} {kind}' for kind, count in report.by_error_type.items())}."
    )
    for recommendation in report.recommendations:
        say(f"- {recommendation}.")
    if report.retryable:
        say(f"Try them again: `automation pricing dlq --project {report.project_id} --retry`.")


def _letter(one: DeadLetter) -> tuple[object, ...]:
    variant = f"{one.product_id}/{one.variant_id or '?'}"
    again = "yes" if one.retryable else "no"
    return (
        one.target_id,
        one.run_id,
        variant,
        minute(one.failed_at),
        one.error_type,
        again,
        one_line(one.error),
    )
