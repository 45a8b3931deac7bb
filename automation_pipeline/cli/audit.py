"""`automation audit`: have fiches judged, and see the verdict with its evidence."""

import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import typer

from automation_pipeline.audits.domain.audit import AuditStatus, Standing
from automation_pipeline.audits.stages.request_audits import Asking, Filed
from automation_pipeline.cli import audit_page
from automation_pipeline.cli.arguments import check_fiche_ids
from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.ports import Desk, NeverBegun
from automation_pipeline.cli.following import follow_audits
from automation_pipeline.cli.output import AsJson, print_json, print_table, screen
from automation_pipeline.cli.waiting import Here, Timeout, follows, waiting
from automation_pipeline.core.errors import RequestFailedError
from automation_pipeline.core.json_model import LARGEST_ID

Ended: TypeAlias = Standing | NeverBegun


def audit(
    fiche_ids: Annotated[
        list[str], typer.Argument(help="The fiches' ids in the CRM. Several are followed as a batch.")
    ],
    *,
    config: Annotated[
        int, typer.Option(min=1, max=LARGEST_ID, help="The configuration: `automation audit-configs list` shows them.")
    ],
    tools: Annotated[
        bool, typer.Option("--tools", help="The model searches the calls instead of getting them whole.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow to the end; exit 1 unless all are judged.")] = False,
    timeout: Timeout = None,
    here: Here = False,
    as_json: AsJson = False,
) -> None:
    """Judge the calls of fiches step by step. What is not transcribed yet is transcribed first. Dagster's daemon starts
    it within seconds."""
    check_fiche_ids(fiche_ids)
    wait = follows("audit", wait=wait, timeout=timeout, here=here)
    our = desk()
    asking = Asking(audit_config_id=config, use_rlm=tools, trigger_source="cli", batch=len(set(fiche_ids)) > 1)
    filed = our.audits.request(fiche_ids, asking)
    ended: Mapping[str, Ended] = {}
    if wait:
        keys = [one.tracking_id for one in filed.audits]
        with waiting(our, keys, timeout=timeout, here=here) as waits:
            ended = follow_audits(filed.audits, our, pause=threading.Event(), quiet=as_json, waits=waits)
    _tell(filed, ended, our, as_json=as_json)
    if not all(isinstance(one, Standing) and one.status is AuditStatus.COMPLETED for one in ended.values()):
        raise typer.Exit(1)


def _tell(filed: Filed, ended: Mapping[str, Ended], our: Desk, *, as_json: bool) -> None:
    if as_json:
        audits = [_document(one.fiche_id, one.tracking_id, ended.get(one.tracking_id)) for one in filed.audits]
        print_json({"batch_id": filed.batch_id, "audits": audits})
        _complain_about_one(list(ended.values()))
    elif not ended:
        for one in filed.audits:
            screen.print(f"Fiche {one.fiche_id}: audit {one.tracking_id}", highlight=False)
    else:
        _show(list(ended.values()), our)


def _show(ended: Sequence[Ended], our: Desk) -> None:
    """Of several a table; one alone is shown with its steps, or with the sentence that refuses it."""
    if len(ended) > 1:
        print_table(("id", "fiche", "status", "verdict", "score", "error"), map(_row, ended))
        return
    _complain_about_one(ended)
    [one] = ended
    assert isinstance(one, Standing)  # noqa: S101  the other kind has just been complained about
    audit_page.show(our.audits.get(one.audit_id), steps=True)


def _complain_about_one(ended: Sequence[Ended]) -> None:
    if len(ended) == 1 and isinstance(ended[0], NeverBegun):
        raise RequestFailedError(ended[0].error)


def _row(one: Ended) -> Sequence[object]:
    if isinstance(one, NeverBegun):
        return None, one.fiche_id, AuditStatus.FAILED, None, None, one.error
    if one.score_percentage is None:
        return one.audit_id, one.fiche_id, one.status, None, None, one.error
    verdict, score = audit_page.coloured(one.niveau), f"{one.score_percentage:.2f} %"
    return one.audit_id, one.fiche_id, one.status, verdict, score, one.error


def _document(fiche_id: str, tracking_id: str, ended: Ended | None) -> dict[str, object]:
    """Whatever became of them, audits that were followed have the same fields."""
    document: dict[str, object] = {"fiche_id": fiche_id, "tracking_id": tracking_id}
    if ended is None:
        return document
    begun = ended if isinstance(ended, Standing) else None
    return document | {
        "audit_id": begun and str(begun.audit_id),
        "status": begun.status if begun else AuditStatus.FAILED,
        "niveau": begun and begun.niveau,
        "score_percentage": begun and begun.score_percentage,
        "failed_steps": begun and begun.failed,
        "error": ended.error,
    }
