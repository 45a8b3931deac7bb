"""`automation audit` and `automation audits`: audit fiches; show, review and rerun audits."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TypeAlias, cast

import typer

from automation_pipeline.audits.commands import rendering
from automation_pipeline.audits.models.audits import (
    AuditStatus,
    AuditSummary,
    Conforme,
    Statut,
    StepLocation,
)
from automation_pipeline.audits.models.requests import AuditFilter
from automation_pipeline.audits.queries.documents import audit_document, list_audits
from automation_pipeline.audits.requests import (
    AuditRequestOptions,
    RequestedRerun,
    RerunStatus,
    audit_request_outcomes,
    request_audits,
    request_rerun,
    rerun_request_outcomes,
)
from automation_pipeline.audits.reviews import record_review, set_audit_deleted
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, operation
from automation_pipeline.cli.output import (
    AsJson,
    check_fiche_ids,
    compact,
    print_json,
    print_result,
    print_table,
    say,
)
from automation_pipeline.cli.progress import (
    FollowedRequest,
    Here,
    LaunchWait,
    Timeout,
    follow_requests,
    follows,
    progress_bars,
    waiting,
)
from automation_pipeline.core.errors import (
    InvalidInputError,
    NotFoundError,
    PermanentError,
    RequestFailedError,
)
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.run_requests import filed_requests

CONTINUES = "The audit continues. `automation audits list` shows its status."
PATH = "/api/audits"
STEP = f"{PATH}/{{audit_id}}/steps/{{step}}[/control-points/{{point}}]"

EndedAudit: TypeAlias = FollowedRequest[AuditSummary]


@dataclass(frozen=True)
class FiledAudit:
    """`event_id` is the key of the run request, and the tracking id of the audit."""

    event_id: str


@operation(f"POST {PATH}")
def file_audit(services: Services, given: Document) -> FiledAudit:
    options = AuditRequestOptions(
        audit_config_id=int(str(given["audit_config_id"])),
        use_rlm=bool(given["use_rlm"]),
        trigger_source=str(given["trigger_source"]),
    )
    [filed] = request_audits(
        [str(given["fiche_id"])], options, database=services.database, clock=services.clock
    ).audits
    return FiledAudit(filed.tracking_id)


@dataclass(frozen=True)
class FiledBatch:
    batch_id: str
    fiche_ids: Sequence[str]
    event_ids: Sequence[str]


@operation(f"POST {PATH}/batch")
def file_batch(services: Services, given: Document) -> FiledBatch:
    options = AuditRequestOptions(
        audit_config_id=int(str(given["audit_config_id"])),
        use_rlm=bool(given["use_rlm"]),
        batch=True,
    )
    fiche_ids = cast("Sequence[str]", given["fiche_ids"])
    filed = request_audits(fiche_ids, options, database=services.database, clock=services.clock)
    return FiledBatch(
        batch_id=str(filed.batch_id),
        fiche_ids=[one.fiche_id for one in filed.audits],
        event_ids=[one.tracking_id for one in filed.audits],
    )


@operation("GET /api/requests/audits")
def audit_requests(session: Session, key: Sequence[str]) -> Sequence[EndedAudit]:
    filed = filed_requests(session, key)
    found = audit_request_outcomes(session, [one.key for one in filed])
    return [
        EndedAudit.of(one.key, one.tags["automation/fiche_id"], found.get(one.key)) for one in filed
    ]


@dataclass(frozen=True)
class Total:
    total: int


@dataclass(frozen=True)
class AuditPage:
    data: Sequence[Document]
    pagination: Total


@operation(f"GET {PATH}", whole=True)
def list_of_audits(
    session: Session,
    *,
    fiche_ids: str,
    audit_config_ids: str,
    status: str,
    latest_only: bool,
    include_deleted: bool,
    limit: int,
) -> AuditPage:
    """Lists are separated by commas; an empty text selects every value."""
    audits, total = list_audits(
        session,
        AuditFilter.model_validate(
            {
                "fiche_ids": fiche_ids,
                "audit_config_ids": audit_config_ids,
                "status": status,
                "latest_only": latest_only,
                "include_deleted": include_deleted,
                "limit": limit,
            }
        ),
    )
    return AuditPage(audits, Total(total))


@operation(f"GET {PATH}/{{audit_id}}")
def get_audit(session: Session, audit_id: int) -> Document:
    return audit_document(session, audit_id)


@operation(f"PATCH {STEP}/review")
def review_finding(
    services: Services, audit_id: int, step: int, point: int | None, given: Document
) -> None:
    record_review(StepLocation(audit_id, step, point), given, database=services.database)


@operation(f"POST {STEP}/rerun")
def file_rerun(
    services: Services, audit_id: int, step: int, point: int | None, custom_prompt: str | None
) -> RequestedRerun:
    return request_rerun(
        StepLocation(audit_id, step, point),
        instructions=custom_prompt,
        database=services.database,
        clock=services.clock,
    )


@operation("GET /api/requests/reruns")
def reruns(session: Session, key: str) -> Sequence[RerunStatus]:
    return [rerun_request_outcomes(session, [key])[key]]


@operation(f"DELETE {PATH}/{{audit_id}}")
def hide_audit(services: Services, audit_id: int) -> None:
    set_audit_deleted(audit_id, deleted=True, database=services.database)


@operation(f"PATCH {PATH}/{{audit_id}}")
def unhide_audit(services: Services, audit_id: int, *, deleted: bool = False) -> None:
    set_audit_deleted(audit_id, deleted=deleted, database=services.database)


def audit(
    fiche_ids: Annotated[
        list[str],
        typer.Argument(help="The fiches' ids in the CRM. Several fiches form a batch."),
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
        typer.Option(
            "--tools",
            help="The model searches the transcripts instead of reading them in the prompt.",
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the end; exit 1 unless all audits are completed."),
    ] = False,
    timeout: Timeout = None,
    here: Here = False,
    as_json: AsJson = False,
) -> None:
    """Judge the calls of fiches step by step. Missing transcripts are made first. Dagster's daemon
    starts the audit within seconds."""
    check_fiche_ids(fiche_ids)
    wait = follows("audit", wait=wait, timeout=timeout, here=here)
    request = {"audit_config_id": str(config), "use_rlm": tools}
    if len(set(fiche_ids)) > 1:
        batch = file_batch({**request, "fiche_ids": list(dict.fromkeys(fiche_ids))})
        batch_id: str | None = batch.batch_id
        fiches = dict(zip(batch.event_ids, batch.fiche_ids, strict=True))
    else:
        filed = file_audit({**request, "fiche_id": fiche_ids[0], "trigger_source": "cli"})
        batch_id, fiches = None, {filed.event_id: fiche_ids[0]}
    ended: Sequence[EndedAudit] = ()
    if wait:
        with waiting(list(fiches), timeout=timeout, here=here) as waits:
            ended = follow_requests(
                fiches,
                audit_requests,
                lambda audit: (audit.status, audit.done, audit.steps, audit.is_over),
                on_interrupt=CONTINUES,
                quiet=as_json,
                waits=waits,
            )
    _print_requested(fiches, batch_id, ended, as_json=as_json)
    if not all(one.standing and one.standing.status is AuditStatus.COMPLETED for one in ended):
        raise typer.Exit(1)


def _print_requested(
    fiches: Mapping[str, str], batch_id: str | None, ended: Sequence[EndedAudit], *, as_json: bool
) -> None:
    """Print several audits as a table, and a single one with its steps. A refused single audit is
    the error of the command."""
    if as_json:
        documents = [{"fiche_id": fiche_id, "tracking_id": key} for key, fiche_id in fiches.items()]
        outcomes = [_outcome_document(one) for one in ended] or [{} for _ in documents]
        audits = [one | more for one, more in zip(documents, outcomes, strict=True)]
        print_json({"batch_id": batch_id, "audits": audits})
    if len(ended) == 1 and ended[0].refused is not None:
        raise RequestFailedError(ended[0].refused)
    if as_json:
        return
    if not ended:
        for key, fiche_id in fiches.items():
            say(f"Fiche {fiche_id}: audit {key}")
    elif len(ended) == 1 and ended[0].standing:
        rendering.show(get_audit(ended[0].standing.audit_id), steps=True)
    else:
        print_table(("id", "fiche", "status", "verdict", "score", "error"), map(_ended_row, ended))


def _ended_row(one: EndedAudit) -> Sequence[object]:
    audit = one.standing
    if audit is None:
        return None, one.fiche_id, AuditStatus.FAILED, None, None, one.refused
    if audit.score_percentage is None:
        return audit.audit_id, one.fiche_id, audit.status, None, None, audit.error
    verdict, score = rendering.coloured(audit.niveau), f"{audit.score_percentage:.2f} %"
    return audit.audit_id, one.fiche_id, audit.status, verdict, score, audit.error


def _outcome_document(one: EndedAudit) -> dict[str, object]:
    """The same fields for every audit, including audits that never started."""
    audit = one.standing
    return {
        "audit_id": audit and str(audit.audit_id),
        "status": audit.status if audit else AuditStatus.FAILED,
        "niveau": audit and audit.niveau,
        "score_percentage": audit and audit.score_percentage,
        "failed_steps": audit and audit.failed,
        "error": audit.error if audit else one.refused,
    }


app = command_group("Show audits; overrule a finding, or judge it again.")

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
        list[str] | None,
        typer.Option(help="Only audits of this fiche; repeat the option for several."),
    ] = None,
    config: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=LARGEST_ID,
            help="Only audits by this configuration; repeat the option for several.",
        ),
    ] = None,
    status: Annotated[
        list[AuditStatus] | None, typer.Option(help="Only audits with this status.")
    ] = None,
    all_versions: Annotated[
        bool,
        typer.Option(
            "--all-versions", help="Include audits that are not the latest of their fiche."
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="The maximum number of audits.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest audit of each fiche and configuration, newest first."""
    check_fiche_ids(fiche or ())
    found = list_of_audits(
        fiche_ids=",".join(fiche or ()),
        audit_config_ids=",".join(map(str, config or ())),
        status=",".join(status or ()),
        latest_only=not all_versions,
        include_deleted=all_versions,
        limit=limit,
    )
    if as_json:
        print_json({"audits": found.data, "total": found.pagination.total})
    else:
        rendering.show_list(found.data, found.pagination.total)


@app.command()
def show(
    audit_id: AuditId,
    *,
    steps: Annotated[
        bool, typer.Option("--steps", help="Show every control point and its evidence.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one audit with its verdict and the verdict of every step; --json shows everything."""
    with _with_audit_id(audit_id):
        document = get_audit(audit_id)
    if as_json:
        print_json(document)
    else:
        rendering.show(document, steps=steps)


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
        int | None, typer.Option(min=0, help="The step's score; unchanged if omitted.")
    ] = None,
    dealt_with: Annotated[
        bool | None, typer.Option(help="Whether the calls deal with the step.")
    ] = None,
    statut: Annotated[
        Statut | None, typer.Option(case_sensitive=False, help="The verdict on the control point.")
    ] = None,
    comment: Annotated[
        str | None, typer.Option(help="The new comment of the control point.")
    ] = None,
    reviewer: Annotated[str | None, typer.Option(help="The name of the reviewer.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    as_json: AsJson = False,
) -> None:
    """Overrule a step (--conforme), or one of its control points (--point with --statut or
    --comment).

    The audit is scored again, and the step records the reviewer, the change and the reason."""
    of_step = compact(conforme=conforme, score=score, traite=dealt_with)
    of_point = compact(statut=statut, commentaire=comment)
    if point is None and of_point:
        raise InvalidInputError(
            "--statut and --comment apply to a control point: name it with --point."
        )
    if point is not None and of_step:
        raise InvalidInputError(
            "--conforme, --score and --dealt-with apply to a whole step: omit --point."
        )
    with _with_audit_id(audit_id):
        review_finding(
            audit_id, step, point, of_step | of_point | compact(reviewer=reviewer, reason=reason)
        )
    _print_step(audit_id, step, {}, as_json=as_json)


@app.command()
def rerun(
    audit_id: AuditId,
    *,
    step: Step,
    point: Point = None,
    instructions: Annotated[
        str | None, typer.Option(help="More instructions for the model; at most 5000 characters.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end; exit 1 if the rerun fails.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge a step or one of its control points again. Dagster's daemon starts the rerun within seconds."""
    with _with_audit_id(audit_id):
        filed = file_rerun(audit_id, step, point, instructions)
    document = {"rerun_id": filed.rerun_id, "event_id": filed.event_id}
    document |= {"audit_id": str(audit_id), "step_position": step}
    document |= compact(control_point_index=point)
    if not wait:
        sentence = f"Rerun {filed.rerun_id} is requested: `automation audits show {audit_id} --steps` shows its result."
        print_result(document, sentence, as_json=as_json)
        return
    error = _follow_rerun(filed.rerun_id, audit_id, quiet=as_json)
    if error is not None and not as_json:
        raise PermanentError(error)
    _print_step(audit_id, step, {**document, "error": error}, as_json=as_json)
    if error is not None:
        raise typer.Exit(1)


def _follow_rerun(rerun_id: str, audit_id: int, *, quiet: bool) -> str | None:
    """None if the new finding is stored, else the reason why the rerun failed."""
    waits = LaunchWait([rerun_id])
    with progress_bars(
        f"The rerun continues. `automation audits show {audit_id} --steps` shows its result.",
        quiet=quiet,
    ) as progress:
        bar = progress.add_task("rerun: waiting for Dagster", total=1)
        while True:
            found = next(iter(reruns(rerun_id)), RerunStatus(begun=False, done=False))
            if found.done:
                progress.update(bar, description="rerun: done", completed=1)
                return None
            if found.refused is not None:
                return found.refused
            if found.begun:
                progress.update(bar, description="rerun: the model judges the step")
            waits.pause(has_started=found.begun)


@app.command()
def delete(audit_id: AuditId, *, as_json: AsJson = False) -> None:
    """Delete an audit. `automation audits restore` restores it."""
    with _with_audit_id(audit_id):
        hide_audit(audit_id)
    print_result(
        {"id": str(audit_id), "deleted": True}, f"Audit {audit_id} is deleted.", as_json=as_json
    )


@app.command()
def restore(audit_id: AuditId, *, as_json: AsJson = False) -> None:
    """Restore a deleted audit."""
    with _with_audit_id(audit_id):
        unhide_audit(audit_id)
    print_result(
        {"id": str(audit_id), "deleted": False}, f"Audit {audit_id} is restored.", as_json=as_json
    )


@contextmanager
def _with_audit_id(audit_id: int) -> Generator[None]:
    """Add the id to the error: the API's message for an unknown audit has none."""
    try:
        yield
    except NotFoundError as error:
        if str(error).rstrip(".") == "Audit not found":
            raise NotFoundError(f"Audit {audit_id} not found") from None
        raise


def _print_step(audit_id: int, position: int, first: Document, *, as_json: bool) -> None:
    """Print the current step, and its audit without steps."""
    audit = get_audit(audit_id)
    found = next(one for one in rendering.steps_of(audit) if rendering.position_of(one) == position)
    if as_json:
        print_json({**first, "audit": rendering.without_steps(audit), "step": found})
        return
    say(f"Step {rendering.step_line(found)}")
    say(f"Audit {audit_id}: {rendering.verdict_line(audit)}")
