"""`automation pricing shop`, `alerts`, `changes` and `dlq`: the shop, written prices, failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import every, operation, write_context
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    Limit,
    Offset,
    counted,
    delivery_cell,
    minute,
    one_line,
    print_facts,
    print_json,
    print_result,
    say,
    second,
    severity_cell,
    show_one,
    show_page,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.pricing.commands.rendering import (
    OfProject,
    Project,
    Targets,
    amount,
    change,
)
from automation_pipeline.pricing.models.rules import DEFAULT_PROJECT
from automation_pipeline.pricing.models.shop import CircuitState, ShopShown
from automation_pipeline.pricing.monitoring import (
    acknowledge_dead_letters,
    list_alerts,
    price_changes,
    report_dead_letters,
    retry_dead_letters,
)
from automation_pipeline.pricing.rules.monitoring import (
    DeadLetter,
    DeadLetterReport,
    PriceChange,
    PriceChangeFilter,
    PricingAlert,
)
from automation_pipeline.pricing.shop import pause_shop, resume_shop, shop_status
from automation_pipeline.storage.database import Session

app = command_group("Show the status of the shop; pause and resume all writes.")

SHOP = "/api/pricing/shop"
LETTERS = "/api/pricing/dead-letters"


@operation(f"GET {SHOP}")
def get_shop(services: Services) -> ShopShown:
    with services.database.reading() as session:
        return shop_status(session, services.storefront.name)


@operation(f"POST {SHOP}/pause")
def pause_writes(services: Services, reason: str | None) -> ShopShown:
    name, acts = services.storefront.name, write_context(services)
    return pause_shop(name, database=acts["database"], actor=acts["actor"], reason=reason)


@operation(f"POST {SHOP}/resume")
def resume_writes(services: Services) -> ShopShown:
    return resume_shop(services.storefront.name, database=services.database, clock=services.clock)


@operation("GET /api/pricing/alerts")
def price_alerts(
    session: Session, *, project: str | None, limit: int, offset: int
) -> Sequence[PricingAlert]:
    return list_alerts(session, project, limit, offset)


@operation("GET /api/pricing/price-changes")
def written_prices(
    session: Session,
    *,
    project: str | None,
    variant: str | None,
    run_id: int | None,
    limit: int,
    after: int,
) -> Sequence[PriceChange]:
    chosen = PriceChangeFilter(project_id=project, variant_id=variant, run_id=run_id)
    return price_changes(session, chosen, limit, after)


@operation(f"GET {LETTERS}")
def dead_letters(services: Services, project: str) -> DeadLetterReport:
    return report_dead_letters(project, database=services.database, clock=services.clock)


@dataclass(frozen=True)
class RetriedLetters:
    run_ids: Sequence[int]


@operation(f"POST {LETTERS}/retry", query=["project"])
def retry_letters(services: Services, project: str, *, force: bool) -> RetriedLetters:
    return RetriedLetters(retry_dead_letters(project, force=force, **write_context(services)).runs)


@dataclass(frozen=True)
class AcknowledgedLetters:
    acknowledged: int


@operation(f"POST {LETTERS}/acknowledge", query=["project"])
def acknowledge_letters(
    services: Services, project: str, target_ids: Sequence[int] | None
) -> AcknowledgedLetters:
    return AcknowledgedLetters(
        acknowledge_dead_letters(project, target_ids, **write_context(services))
    )


@app.command()
def show(*, as_json: AsJson = False) -> None:
    """Show the status of the shop, without calling it. For example: automation pricing shop show"""
    show_one(get_shop(), print_shop, as_json=as_json)


@app.command()
def pause(
    *,
    reason: Annotated[str | None, typer.Option(help="The reason, which is stored with it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write no more prices until the shop is resumed. Runs wait; previews and reconciliations
    continue.

    For example: automation pricing shop pause --reason "The accountants count the stock"
    """
    show_one(pause_writes(reason), print_shop, as_json=as_json)


@app.command()
def resume(*, as_json: AsJson = False) -> None:
    """Resume writing prices: runs continue. For example: automation pricing shop resume"""
    show_one(resume_writes(), print_shop, as_json=as_json)


def alerts(
    *, project: OfProject = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the alerts, newest first: why each was raised, and how its message was delivered.

    For example: automation pricing alerts --project summer
    """
    found = price_alerts(project=project, limit=limit + 1, offset=offset)
    show_page("alerts", found, ALERTS.print, limit=limit, offset=offset, as_json=as_json)


def changes(
    *,
    variant: Annotated[str | None, typer.Option(help="Only prices of this variant.")] = None,
    run: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only prices that this run wrote.")
    ] = None,
    project: OfProject = None,
    as_json: AsJson = False,
) -> None:
    """List every price that runs and rollbacks wrote in the shop, newest last.

    For example: automation pricing changes --variant 44120301"""
    found = every(written_prices, project=project, variant=variant, run_id=run)
    if as_json:
        print_json({"changes": [as_document(one) for one in found]})
    else:
        CHANGES.print(found)


def dlq(
    *,
    project: Project = DEFAULT_PROJECT,
    retry: Annotated[
        bool, typer.Option("--retry", help="Retry the retryable dead letters, run by run.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="With --retry: also retry those that need a fixed cause."),
    ] = False,
    acknowledge: Annotated[
        bool,
        typer.Option("--acknowledge", help="Acknowledge them: they raise no more alerts."),
    ] = False,
    target: Targets = None,
    as_json: AsJson = False,
) -> None:
    """Report a project's dead letters: failed price changes that are not retried automatically.

    For example: automation pricing dlq --project summer --retry"""
    if retry and acknowledge:
        raise InvalidInputError("Use either --retry or --acknowledge.")
    if force and not retry:
        raise InvalidInputError("--force requires --retry.")
    if target and not acknowledge:
        raise InvalidInputError(
            "--target requires --acknowledge: `automation pricing runs retry` retries single targets."
        )
    if retry:
        run_ids = retry_letters(project, force=force).run_ids
        sentence = (
            f"Retried in run {', '.join(map(str, run_ids))}: `automation pricing runs watch {run_ids[0]}` "
            "follows it."
            if run_ids
            else "No dead letter can be retried now: remove the cause, then use --retry --force."
        )
        document = {"project": project, "run_ids": [str(run_id) for run_id in run_ids]}
        print_result(document, sentence, as_json=as_json)
    elif acknowledge:
        count = acknowledge_letters(project, target or None).acknowledged
        sentence = f"{counted(count, 'dead letter')} of {project} acknowledged."
        print_result({"project": project, "acknowledged": count}, sentence, as_json=as_json)
    else:
        show_one(dead_letters(project), _print_report, as_json=as_json)


def _print_report(report: DeadLetterReport) -> None:
    if not report.total_failed:
        say(f"Project {report.project_id} has no dead letter.")
        return
    LETTER_COLUMNS.print(report.entries)
    say(
        f"{report.total_failed} failed: {report.retryable} retryable, {report.stale} older than a day. "
        f"By reason: {', '.join(f'{count} {kind}' for kind, count in report.by_error_type.items())}."
    )
    for recommendation in report.recommendations:
        say(f"- {recommendation}.")
    if report.retryable:
        say(f"Retry them: `automation pricing dlq --project {report.project_id} --retry`.")


def print_shop(shop: ShopShown) -> None:
    prices = "are written"
    if shop.paused_at is not None:
        why = f": {shop.pause_reason}" if shop.pause_reason else ""
        prices = (
            f"are not written since {minute(shop.paused_at)} UTC, paused by {shop.paused_by}{why}"
        )
    print_facts(
        {
            "shop": shop.shop,
            "prices": prices,
            "calls": _circuit(shop),
            "points": _bucket(shop),
            "refused": f"{len(shop.refusals)} calls because of its rate limit, last at {minute(shop.refusals[-1])} UTC"
            if shop.refusals
            else None,
        }
    )


def _circuit(shop: ShopShown) -> str:
    circuit = shop.circuit
    until = f" until {second(circuit.until)}" if circuit.until else ""
    words = {
        CircuitState.CLOSED: f"the shop asked for a pause{until}" if until else "are made",
        CircuitState.OPEN: f"are not made{until}: too many have failed",
        CircuitState.HALF_OPEN: "one probe is made to see whether the shop has recovered",
    }
    return words[circuit.state]


def _bucket(shop: ShopShown) -> str | None:
    if shop.bucket is None:
        return "unknown: it was never called"
    available, maximum, rate = map(
        round, (shop.bucket.available, shop.bucket.maximum, shop.bucket.restore_rate)
    )
    return f"{available} of {maximum} were left at the last call, {rate} are restored per second"


ALERTS = Columns[PricingAlert](
    {
        "id": lambda one: one.id,
        "raised (UTC)": lambda one: minute(one.raised_at),
        "project": lambda one: one.project_id,
        "alert": lambda one: one.name,
        "severity": lambda one: severity_cell(one.severity),
        "message": lambda one: one.message,
        "webhook": lambda one: delivery_cell(one.status, one.last_error),
    },
    texts={"project", "message", "webhook"},
)
CHANGES = Columns[PriceChange](
    {
        "written (UTC)": lambda one: f"{one.applied_at:%Y-%m-%d %H:%M:%S}",
        "run": lambda one: one.rule_run_id,
        "by": lambda one: f"{one.kind} ({one.source})",
        "variant": lambda one: f"{one.product_id}/{one.variant_id}",
        "sku": lambda one: one.sku_id,
        "before": lambda one: amount(one.from_amount, one.currency),
        "after": lambda one: amount(one.to_amount, one.currency),
        "change": lambda one: change(one.from_amount, one.to_amount, one.currency),
        "note": lambda one: "the shop already had it" if one.was_found else "",
    },
    texts={"by", "variant", "sku", "note"},
)
LETTER_COLUMNS = Columns[DeadLetter](
    {
        "target": lambda one: one.target_id,
        "run": lambda one: one.run_id,
        "variant": lambda one: f"{one.product_id}/{one.variant_id or '?'}",
        "failed (UTC)": lambda one: minute(one.failed_at),
        "reason": lambda one: one.error_type,
        "retryable": lambda one: "yes" if one.retryable else "no",
        "error": lambda one: one_line(one.error),
    },
    texts={"variant", "retryable", "error"},
)
