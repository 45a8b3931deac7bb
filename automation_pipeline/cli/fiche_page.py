"""One fiche on a screen: whose it is, how it stands, its calls."""

from collections.abc import Mapping, Sequence
from typing import cast

from automation_pipeline.cli.output import print_facts, print_table

Part = Mapping[str, object]


def print_fiche(document: Part) -> None:
    information, prospect = _part(document, "information"), _part(document, "prospect")
    recordings = cast("Sequence[Part]", document["recordings"])
    known = [recording for recording in recordings if recording["vanished_at"] is None]
    print_facts(
        {
            "fiche": f"{document['fiche_id']}  {document['prospect_prenom'] or ''} {document['prospect_nom'] or ''}",
            "state": _state(document),
            "sold on": document["sales_date"],
            "groupe": document["groupe"],
            "agent": information.get("attribution_user_nom"),
            "agence": document["agence_nom"],
            "telephone": document["prospect_tel"],
            "mail": document["prospect_email"],
            "town": prospect.get("ville"),
            "recordings": f"{len(known)}, {_count(known, 'recording_url')} with audio, "
            f"{_count(known, 'has_transcription')} transcribed",
        }
    )
    _print_run(_part(document, "transcription").get("run"))
    if recordings:
        print_table(
            ("call", "day", "time", "seconds", "direction", "audio", "transcript"), [_call(each) for each in recordings]
        )


def _print_run(told: object) -> None:
    """The last transcription: how it stands, who holds what and for how long, what failed and why."""
    if told is None:
        return
    run = cast("Part", told)
    counts = f"{run['processed']} of {run['targetTotal']} recordings, {run['failed']} failed"
    print_facts({"transcription": f"{run['state']}, {counts}", "run": run["id"], "error": run["error"]})
    unusual = [task for task in cast("Sequence[Part]", run["tasks"]) if task["state"] != "done"]
    if unusual:
        columns = ("callId", "state", "attempts", "owner", "secondsLeft", "againInSeconds", "error")
        names = ("call", "state", "attempts", "held by", "for s", "again in s", "why")
        print_table(names, [[task[column] for column in columns] for task in unusual])


def _count(recordings: Sequence[Part], what: str) -> int:
    return sum(bool(recording[what]) for recording in recordings)


def _part(document: Part, name: str) -> Part:
    return cast("Part", document[name] or {})


def _state(document: Part) -> str:
    fetched = document["details_fetched_at"]
    return f"{document['state']}, details of {fetched}" if fetched else str(document["state"])


def _call(recording: Part) -> tuple[object, ...]:
    audio = "vanished" if recording["vanished_at"] else "yes" if recording["recording_url"] else "no"
    columns = ("call_id", "recording_date", "recording_time", "duration_seconds", "direction")
    transcript = "yes" if recording["has_transcription"] else "no"
    return (*(recording[column] for column in columns), audio, transcript)
