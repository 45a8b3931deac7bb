"""Audits on a terminal: a list, or one with its verdict, its steps and their evidence."""

from collections.abc import Mapping, Sequence
from typing import cast

from rich.text import Text

from automation_pipeline.cli.output import Columns, one_line, plain_text, print_facts, say, screen

Part = Mapping[str, object]

LONGEST_COMMENT = 70
COLOURS = {
    "EXCELLENT": "green", "BON": "green", "ACCEPTABLE": "yellow", "INSUFFISANT": "red", "REJET": "red",
    "running": "cyan", "incomplete": "yellow", "failed": "red",
    "CONFORME": "green", "PARTIEL": "yellow", "NON_CONFORME": "red", "PRESENT": "green",
    "ABSENT": "red", "NON_APPLICABLE": "cyan",
}  # fmt: skip


def show_list(audits: Sequence[Part], total: int) -> None:
    AUDITS.print(audits)
    if len(audits) < total:
        say(f"{len(audits)} of {total} audits.")


def show(document: Part, *, steps: bool) -> None:
    """One audit; with `steps`, down to the quotations."""
    _print_verdict(document)
    found = steps_of(document)
    if found:
        STEPS.print(found)
        if any(_part(step, "step_metadata")["is_critical"] for step in found):
            say("* critical: the audit is rejected unless it is CONFORME")
    for step in found if steps else ():
        _print_points(step)


def steps_of(document: Part) -> Sequence[Part]:
    return _list(_part(_part(_part(document, "resultData"), "audit"), "results"), "steps")


def position_of(step: Part) -> object:
    return _part(step, "step_metadata")["position"]


def without_steps(document: Part) -> Part:
    result = _part(document, "resultData")
    audit = _part(result, "audit")
    results = {name: one for name, one in _part(audit, "results").items() if name != "steps"}
    return {
        **{name: value for name, value in document.items() if name != "stepResults"},
        "resultData": {**result, "audit": {**audit, "results": results}},
    }


def coloured(word: object) -> Text:
    return Text(str(word), COLOURS.get(str(word).partition(" ")[0], ""))


def verdict_line(document: Part) -> str:
    return f"{document['niveau']}, {_percentage(document)}, {_critical(document)} critical steps passed"


def step_line(step: Part) -> str:
    """For example `3 Greeting: CONFORME, 8/10`."""
    of = _part(step, "step_metadata")
    return f"{of['position']}  {one_line(str(of['name']))}: {_step_verdict(step)}, {_points(step)}"


def _print_verdict(document: Part) -> None:
    has_verdict = document["status"] == "completed"
    # An incomplete audit counts the judged steps, a completed one those that the calls deal with.
    kind = {"completed": "dealt with", "incomplete": "judged"}.get(str(document["status"]))
    verdict = (
        Text(verdict_line(document), COLOURS.get(str(document["niveau"]), ""))
        if has_verdict
        else None
    )
    error = document["errorMessage"]
    print_facts(
        {
            "verdict": verdict,
            "audit": f"{document['id']}, {document['status']}{_remark(document)}",
            "error": error and Text(str(error), "red"),
            "fiche": f"{document['ficheId']}  {document['prospectName']}",
            "configuration": f"{document['auditConfigId']}  {document['auditConfigName']}",
            "steps": kind
            and f"{document['successfulSteps']} {kind}, {document['failedSteps']} not",
            "calls": None
            if document["recordingsCount"] is None
            else (
                f"{document['recordingsCount']} recordings, {document['timelineChunks']} chunks, "
                f"transcript by {document['transcriptMode']}"
            ),
            "transcripts": _transcripts(document),
            "tokens": document["totalTokens"],
            "started": document["startedAt"],
            "ended": document["completedAt"],
            "asked for by": document["triggerSource"],
            "notes": document["notes"],
        }
    )


def _transcripts(document: Part) -> str | None:
    coverage = _part(document, "coverage")
    if not coverage:
        return None
    left_out = (
        f", {len(_list(coverage, 'without_audio'))} without audio"
        if _list(coverage, "without_audio")
        else ""
    )
    return f"{coverage['transcribed']} of {coverage['required']}{left_out}"


def _print_points(step: Part) -> None:
    say("")
    screen.print(plain_text(Text(step_line(step), "bold")))
    for number, point in enumerate(_list(step, "points_controle"), start=1):
        line = Text.assemble(
            f"  {number}. ", coloured(point["statut"]), f"  {one_line(str(point['point']))}"
        )
        screen.print(plain_text(line))
        if point["commentaire"]:
            say(f"     {one_line(str(point['commentaire']))}")
        for citation in _list(point, "citations"):
            say(f"     {_quotation(citation)}")
    for review in _list(step, "human_review"):
        say(
            f"  reviewed {review['at']} by {review['by'] or 'an unknown reviewer'}: {_change(review, 'override')}"
        )
    for rerun in _list(step, "rerun_history"):
        say(f"  judged again {rerun['at']}: {_change(rerun, 'next')}")


def _quotation(citation: Part) -> str:
    """Calls count from 1 for people."""
    call = cast("int", citation["recording_index"]) + 1
    when = f"{citation['recording_date']} {citation['recording_time']}"
    text = one_line(str(citation["texte"]))
    return f"« {text} » {citation['minutage']}, call {call} ({when}), {citation['speaker']}"


def _change(entry: Part, then: str) -> str:
    """The changed values; of a comment only that it changed."""
    before, after = _part(entry, "previous"), _part(entry, then)
    changes = [
        "the comment" if name == "commentaire" else f"{name} {before[name]} -> {after[name]}"
        for name in after
        if after[name] != before.get(name)
    ]
    where = (
        f"control point {entry['control_point_index']}, " if "control_point_index" in entry else ""
    )
    reason = entry.get("reason") or entry.get("custom_prompt")
    why = f" ({reason})" if reason else ""
    return one_line(f"{where}{', '.join(changes) or 'as it was'}{why}")


def _step_verdict(step: Part) -> str:
    return "not judged" if step["error"] else str(step["conforme"])


def _points(step: Part) -> str:
    return "" if step["error"] else f"{step['score']}/{_part(step, 'step_metadata')['weight']}"


def _percentage(document: Part) -> str:
    score = document["scorePercentage"]
    return "" if score is None else f"{score:.2f} %"


def _critical(document: Part) -> str:
    has_verdict = document["status"] == "completed"
    return f"{document['criticalPassed']}/{document['criticalTotal']}" if has_verdict else ""


def _remark(document: Part) -> str:
    if document["deletedAt"]:
        return " (deleted)"
    is_old = document["status"] == "completed" and not document["isLatest"]
    return " (old)" if is_old else ""


def _comment(step: Part) -> str:
    line = one_line(str(step["error"] or step["commentaire_global"]))
    return line if len(line) <= LONGEST_COMMENT else f"{line[: LONGEST_COMMENT - 1].rstrip()}…"


def _part(document: Part, name: str) -> Part:
    return cast("Part", document.get(name) or {})


def _list(document: Part, name: str) -> Sequence[Part]:
    return cast("Sequence[Part]", document.get(name) or ())


AUDITS = Columns[Part](
    {
        "id": lambda one: one["id"],
        "fiche": lambda one: one["ficheId"],
        "configuration": lambda one: one["auditConfigName"],
        # Without a verdict, the status; and the reason if the audit does not count.
        "verdict": lambda one: coloured(
            f"{one['niveau'] if one['status'] == 'completed' else one['status']}{_remark(one)}"
        ),
        "score": _percentage,
        "critical": _critical,
        "started (UTC)": lambda one: str(one["createdAt"])[:16].replace("T", " "),
    }
)
STEPS = Columns[Part](
    {
        "step": position_of,
        "name": lambda one: (
            str(_part(one, "step_metadata")["name"])
            + " *" * bool(_part(one, "step_metadata")["is_critical"])
        ),
        "verdict": lambda one: coloured(_step_verdict(one)),
        "score": _points,
        "comment": _comment,
    }
)
