"""`automation audit` and `automation audits`: have fiches judged, see, review and rerun audits."""

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from automation_pipeline.audits.commands import rendering as audit_page
from automation_pipeline.audits.models.audits import AuditStatus, AuditSummary, StepLocation
from automation_pipeline.audits.models.findings import Conforme, Statut
from automation_pipeline.audits.models.requests import AuditFilter
from automation_pipeline.audits.requests import AuditRequestOptions, FiledAudits, RequestedRerun
from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import Client, NeverStarted
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import AsJson, check_fiche_ids, print_json, print_table, screen
from automation_pipeline.cli.progress import (
    Here,
    Timeout,
    follow_audits,
    follow_rerun,
    follows,
    waiting,
)
from automation_pipeline.core.errors import (
    InvalidInputError,
    NotFoundError,
    PermanentError,
    RequestFailedError,
)
from automation_pipeline.core.json_model import LARGEST_ID

EndedAudit: TypeAlias = AuditSummary | NeverStarted


def audit(
    fiche_ids: Annotated[
        list[str],
        typer.Argument(help="The fiches' ids in the CRM. Several are followed as a batch."),
    ],
    *,
    config: Annotated[
        int,
        typer.Option(
            min=1,
            max=LARGEST_ID,
            help="The configuration: `automation audit-configs list` shows them.",
        ),
    ],
    tools: Annotated[
        bool,
        typer.Option("--tools", help="The model searches the calls instead of getting them whole."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow to the end; exit 1 unless all are judged.")
    ] = False,
    timeout: Timeout = None,
    here: Here = False,
    as_json: AsJson = False,
) -> None:
    """Judge the calls of fiches step by step. What is not transcribed yet is transcribed first.
    Dagster's daemon starts it within seconds."""
    check_fiche_ids(fiche_ids)
    wait = follows("audit", wait=wait, timeout=timeout, here=here)
    client = open_client()
    asking = AuditRequestOptions(
        audit_config_id=config, use_rlm=tools, trigger_source="cli", batch=len(set(fiche_ids)) > 1
    )
    filed = client.audits.request(fiche_ids, asking)
    ended: Mapping[str, EndedAudit] = {}
    if wait:
        keys = [one.tracking_id for one in filed.audits]
        with waiting(client, keys, timeout=timeout, here=here) as waits:
            ended = follow_audits(
                filed.audits, client, pause=threading.Event(), quiet=as_json, waits=waits
            )
    _print_outcome(filed, ended, client, as_json=as_json)
    if not all(
        isinstance(one, AuditSummary) and one.status is AuditStatus.COMPLETED
        for one in ended.values()
    ):
        raise typer.Exit(1)


def _print_outcome(
    filed: FiledAudits, ended: Mapping[str, EndedAudit], client: Client, *, as_json: bool
) -> None:
    if as_json:
        audits = [
            _outcome_document(one.fiche_id, one.tracking_id, ended.get(one.tracking_id))
            for one in filed.audits
        ]
        print_json({"batch_id": filed.batch_id, "audits": audits})
        _raise_single_refusal(list(ended.values()))
    elif not ended:
        for one in filed.audits:
            screen.print(f"Fiche {one.fiche_id}: audit {one.tracking_id}", highlight=False)
    else:
        _print_ended(list(ended.values()), client)


def _print_ended(ended: Sequence[EndedAudit], client: Client) -> None:
    """Of several a table; one alone is shown with its steps, or with the sentence that refuses
    it."""
    if len(ended) > 1:
        print_table(("id", "fiche", "status", "verdict", "score", "error"), map(_ended_row, ended))
        return
    _raise_single_refusal(ended)
    [one] = ended
    assert isinstance(one, AuditSummary)  # noqa: S101  the other kind has just been complained about
    audit_page.show(client.audits.get(one.audit_id), steps=True)


def _raise_single_refusal(ended: Sequence[EndedAudit]) -> None:
    if len(ended) == 1 and isinstance(ended[0], NeverStarted):
        raise RequestFailedError(ended[0].error)


def _ended_row(one: EndedAudit) -> Sequence[object]:
    if isinstance(one, NeverStarted):
        return None, one.fiche_id, AuditStatus.FAILED, None, None, one.error
    if one.score_percentage is None:
        return one.audit_id, one.fiche_id, one.status, None, None, one.error
    verdict, score = audit_page.coloured(one.niveau), f"{one.score_percentage:.2f} %"
    return one.audit_id, one.fiche_id, one.status, verdict, score, one.error


def _outcome_document(
    fiche_id: str, tracking_id: str, ended: EndedAudit | None
) -> dict[str, object]:
    """Whatever became of them, audits that were followed have the same fields."""
    document: dict[str, object] = {"fiche_id": fiche_id, "tracking_id": tracking_id}
    if ended is None:
        return document
    begun = ended if isinstance(ended, AuditSummary) else None
    return document | {
        "audit_id": begun and str(begun.audit_id),
        "status": begun.status if begun else AuditStatus.FAILED,
        "niveau": begun and begun.niveau,
        "score_percentage": begun and begun.score_percentage,
        "failed_steps": begun and begun.failed,
        "error": ended.error,
    }


app = command_group("See what audits found; overrule it, or have it judged again.")

AuditId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The audit's id, as `automation audits list` shows it."
    ),
]
Step = Annotated[int, typer.Option(min=1, max=LARGEST_ID, help="The position of the step.")]
Point = Annotated[
    int | None,
    typer.Option(min=1, max=LARGEST_ID, help="Only this control point of the step, from 1."),
]


@app.command("list")
def list_(
    *,
    fiche: Annotated[
        list[str] | None, typer.Option(help="Only audits of this fiche; may be repeated.")
    ] = None,
    config: Annotated[
        list[int] | None,
        typer.Option(
            min=1, max=LARGEST_ID, help="Only audits by this configuration; may be repeated."
        ),
    ] = None,
    status: Annotated[
        list[AuditStatus] | None, typer.Option(help="Only audits that stand so.")
    ] = None,
    all_versions: Annotated[
        bool, typer.Option("--all-versions", help="Not only the latest of each fiche.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest audit of each fiche and configuration, newest first."""
    check_fiche_ids(fiche or ())
    chosen = AuditFilter(
        fiche_ids=tuple(fiche or ()),
        audit_config_ids=tuple(config or ()),
        status=tuple(status or ()),
        latest_only=not all_versions,
        include_deleted=all_versions,
        limit=limit,
    )
    audits, total = open_client().audits.listed(chosen)
    if as_json:
        print_json({"audits": audits, "total": total})
    else:
        audit_page.show_list(audits, total)


@app.command()
def show(
    audit_id: AuditId,
    *,
    steps: Annotated[
        bool, typer.Option("--steps", help="Show every control point and what proves it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one audit: its verdict, and that of every step; --json shows all of it."""
    with _audit_in_sentence(audit_id):
        document = open_client().audits.get(audit_id)
    if as_json:
        print_json(document)
    else:
        audit_page.show(document, steps=steps)


@app.command()
def review(
    audit_id: AuditId,
    *,
    step: Step,
    point: Point = None,
    conforme: Annotated[
        Conforme | None, typer.Option(case_sensitive=False, help="The step's verdict.")
    ] = None,
    score: Annotated[
        int | None, typer.Option(min=0, help="The step's score; as it was when left out.")
    ] = None,
    dealt_with: Annotated[
        bool | None, typer.Option(help="Whether the step was judged at all.")
    ] = None,
    statut: Annotated[
        Statut | None, typer.Option(case_sensitive=False, help="The control point's.")
    ] = None,
    comment: Annotated[
        str | None, typer.Option(help="The control point's comment from now on.")
    ] = None,
    reviewer: Annotated[str | None, typer.Option(help="Who says so.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    as_json: AsJson = False,
) -> None:
    """Overrule a step (--conforme), or one of its control points (--point with --statut or
    --comment).

    The audit is scored anew, and the step's trail tells who overruled what and why.
    """
    of_step = {"conforme": conforme, "score": score, "traite": dealt_with}
    of_point = {"statut": statut, "commentaire": comment}
    _only_of_one(point, of_step, of_point)
    fields = {**(of_step if point is None else of_point), "reviewer": reviewer, "reason": reason}
    given = {name: value for name, value in fields.items() if value is not None}
    client, place = open_client(), StepLocation(audit_id, step, point)
    with _audit_in_sentence(audit_id):
        client.audits.review(place, given)
    _print_step(place, client, {}, as_json=as_json)


@app.command()
def rerun(
    audit_id: AuditId,
    *,
    step: Step,
    point: Point = None,
    instructions: Annotated[
        str | None, typer.Option(help="What the model is told beside; 5000 characters.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow to the end; exit 1 when it fails.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Have a step, or one of its control points, judged again. Dagster's daemon starts it within
    seconds."""
    client, place = open_client(), StepLocation(audit_id, step, point)
    with _audit_in_sentence(audit_id):
        requested = client.audits.request_rerun(place, instructions)
    if wait:
        error = follow_rerun(
            requested.rerun_id, audit_id, client, pause=threading.Event(), quiet=as_json
        )
        _print_rerun(requested, place, client, error, as_json=as_json)
    elif as_json:
        print_json(_rerun_document(requested, place))
    else:
        _print(
            f"Rerun {requested.rerun_id} is requested: `automation audits show {audit_id} --steps` tells of it."
        )


@app.command()
def delete(audit_id: AuditId, *, as_json: AsJson = False) -> None:
    """Put an audit out of sight. `automation audits restore` takes that back."""
    with _audit_in_sentence(audit_id):
        open_client().audits.delete(audit_id)
    _print_deleted(audit_id, deleted=True, as_json=as_json)


@app.command()
def restore(audit_id: AuditId, *, as_json: AsJson = False) -> None:
    """Take back the deletion of an audit."""
    with _audit_in_sentence(audit_id):
        open_client().audits.restore(audit_id)
    _print_deleted(audit_id, deleted=False, as_json=as_json)


@contextmanager
def _audit_in_sentence(audit_id: int) -> Generator[None]:
    """The HTTP API keeps a sentence without an id for an audit that does not exist."""
    try:
        yield
    except NotFoundError as error:
        if str(error).rstrip(".") == "Audit not found":
            raise NotFoundError(f"Audit {audit_id} not found") from None
        raise


def _only_of_one(
    point: int | None, of_step: Mapping[str, object], of_point: Mapping[str, object]
) -> None:
    if point is None and any(value is not None for value in of_point.values()):
        raise InvalidInputError(
            "--statut and --comment are about a control point: name it with --point."
        )
    if point is not None and any(value is not None for value in of_step.values()):
        raise InvalidInputError(
            "--conforme, --score and --dealt-with are about a whole step: leave out --point."
        )


def _print_step(
    place: StepLocation, client: Client, besides: dict[str, object], *, as_json: bool
) -> None:
    step, audit = client.audits.step(place)
    if as_json:
        print_json({**besides, "audit": audit, "step": step})
        return
    _print(f"Step {audit_page.step_line(step)}")
    _print(f"Audit {place.audit_id}: {audit_page.verdict_line(audit)}")


def _print_rerun(
    requested: RequestedRerun,
    place: StepLocation,
    client: Client,
    error: str | None,
    *,
    as_json: bool,
) -> None:
    """Of one that failed the document tells why, and how the step still stands."""
    if error is not None and not as_json:
        raise PermanentError(error)
    _print_step(
        place, client, {**_rerun_document(requested, place), "error": error}, as_json=as_json
    )
    if error is not None:
        raise typer.Exit(1)


def _rerun_document(requested: RequestedRerun, place: StepLocation) -> dict[str, object]:
    about: dict[str, object] = {"audit_id": str(place.audit_id), "step_position": place.position}
    if place.point is not None:
        about["control_point_index"] = place.point
    return {"rerun_id": requested.rerun_id, "event_id": requested.event_id, **about}


def _print_deleted(audit_id: int, *, deleted: bool, as_json: bool) -> None:
    if as_json:
        print_json({"id": str(audit_id), "deleted": deleted})
    else:
        _print(f"Audit {audit_id} is {'deleted' if deleted else 'restored'}.")


def _print(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)
