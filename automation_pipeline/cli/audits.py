"""`automation audits`: what was found in the calls of fiches, overruled by people or judged again."""

import threading
from collections.abc import Mapping
from typing import Annotated

import typer

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.audit_filter import AuditFilter
from automation_pipeline.audits.domain.findings import Conforme, Statut
from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.stages.request_rerun import RequestedRerun
from automation_pipeline.cli import audit_page
from automation_pipeline.cli.arguments import check_fiche_ids
from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.following import follow_rerun
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.core.json_model import LARGEST_ID

app = typer.Typer(help="See what audits found; overrule it, or have it judged again.", no_args_is_help=True)

AuditId = Annotated[
    int, typer.Argument(min=1, max=LARGEST_ID, help="The audit's id, as `automation audits list` shows it.")
]
Step = Annotated[int, typer.Option(min=1, max=LARGEST_ID, help="The position of the step.")]
Point = Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only this control point of the step, from 1.")]


@app.command("list")
def list_(
    *,
    fiche: Annotated[list[str] | None, typer.Option(help="Only audits of this fiche; may be repeated.")] = None,
    config: Annotated[
        list[int] | None,
        typer.Option(min=1, max=LARGEST_ID, help="Only audits by this configuration; may be repeated."),
    ] = None,
    status: Annotated[list[AuditStatus] | None, typer.Option(help="Only audits that stand so.")] = None,
    all_versions: Annotated[bool, typer.Option("--all-versions", help="Not only the latest of each fiche.")] = False,
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
    audits, total = desk().audits.listed(chosen)
    if as_json:
        print_json({"audits": audits, "total": total})
    else:
        audit_page.show_list(audits, total)


@app.command()
def show(
    audit_id: AuditId,
    *,
    steps: Annotated[bool, typer.Option("--steps", help="Show every control point and what proves it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one audit: its verdict, and that of every step; --json shows all of it."""
    document = desk().audits.get(audit_id)
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
    conforme: Annotated[Conforme | None, typer.Option(case_sensitive=False, help="The step's verdict.")] = None,
    score: Annotated[int | None, typer.Option(min=0, help="The step's score; as it was when left out.")] = None,
    dealt_with: Annotated[bool | None, typer.Option(help="Whether the step was judged at all.")] = None,
    statut: Annotated[Statut | None, typer.Option(case_sensitive=False, help="The control point's.")] = None,
    comment: Annotated[str | None, typer.Option(help="The control point's comment from now on.")] = None,
    reviewer: Annotated[str | None, typer.Option(help="Who says so.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    as_json: AsJson = False,
) -> None:
    """Overrule a step (--conforme), or one of its control points (--point with --statut or --comment).

    The audit is scored anew, and the step's trail tells who overruled what and why.
    """
    of_step = {"conforme": conforme, "score": score, "traite": dealt_with}
    of_point = {"statut": statut, "commentaire": comment}
    _only_of_one(point, of_step, of_point)
    fields = {**(of_step if point is None else of_point), "reviewer": reviewer, "reason": reason}
    given = {name: value for name, value in fields.items() if value is not None}
    our, place = desk(), Place(audit_id, step, point)
    our.audits.review(place, given)
    _tell_step(place, our, {}, as_json=as_json)


@app.command()
def rerun(
    audit_id: AuditId,
    *,
    step: Step,
    point: Point = None,
    instructions: Annotated[str | None, typer.Option(help="What the model is told beside; 5000 characters.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow to the end; exit 1 when it fails.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have a step, or one of its control points, judged again. Dagster's daemon starts it within seconds."""
    our, place = desk(), Place(audit_id, step, point)
    requested = our.audits.request_rerun(place, instructions)
    if wait:
        error = follow_rerun(requested.rerun_id, audit_id, our, pause=threading.Event(), quiet=as_json)
        _tell_rerun(requested, place, our, error, as_json=as_json)
    elif as_json:
        print_json(_document(requested, place))
    else:
        _say(f"Rerun {requested.rerun_id} is requested: `automation audits show {audit_id} --steps` tells of it.")


@app.command()
def delete(audit_id: AuditId, *, as_json: AsJson = False) -> None:
    """Put an audit out of sight. `automation audits restore` takes that back."""
    desk().audits.delete(audit_id)
    _tell_deleted(audit_id, deleted=True, as_json=as_json)


@app.command()
def restore(audit_id: AuditId, *, as_json: AsJson = False) -> None:
    """Take back the deletion of an audit."""
    desk().audits.restore(audit_id)
    _tell_deleted(audit_id, deleted=False, as_json=as_json)


def _only_of_one(point: int | None, of_step: Mapping[str, object], of_point: Mapping[str, object]) -> None:
    if point is None and any(value is not None for value in of_point.values()):
        raise InvalidInputError("--statut and --comment are about a control point: name it with --point.")
    if point is not None and any(value is not None for value in of_step.values()):
        raise InvalidInputError("--conforme, --score and --dealt-with are about a whole step: leave out --point.")


def _tell_step(place: Place, our: Desk, besides: dict[str, object], *, as_json: bool) -> None:
    step, audit = our.audits.step(place)
    if as_json:
        print_json({**besides, "audit": audit, "step": step})
        return
    _say(f"Step {audit_page.step_line(step)}")
    _say(f"Audit {place.audit_id}: {audit_page.verdict_line(audit)}")


def _tell_rerun(requested: RequestedRerun, place: Place, our: Desk, error: str | None, *, as_json: bool) -> None:
    """Of one that failed the document tells why, and how the step still stands."""
    if error is not None and not as_json:
        raise PermanentError(error)
    _tell_step(place, our, {**_document(requested, place), "error": error}, as_json=as_json)
    if error is not None:
        raise typer.Exit(1)


def _document(requested: RequestedRerun, place: Place) -> dict[str, object]:
    about: dict[str, object] = {"audit_id": str(place.audit_id), "step_position": place.position}
    if place.point is not None:
        about["control_point_index"] = place.point
    return {"rerun_id": requested.rerun_id, "event_id": requested.event_id, **about}


def _tell_deleted(audit_id: int, *, deleted: bool, as_json: bool) -> None:
    if as_json:
        print_json({"id": str(audit_id), "deleted": deleted})
    else:
        _say(f"Audit {audit_id} is {'deleted' if deleted else 'restored'}.")


def _say(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)
