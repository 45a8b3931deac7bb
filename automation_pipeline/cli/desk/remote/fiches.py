"""Fiches and their transcripts by the API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from pydantic import TypeAdapter

from automation_pipeline.cli.desk.ports import NeverBegun
from automation_pipeline.cli.desk.remote.api import Api, Document, data_of, read
from automation_pipeline.cli.desk.remote.requests import asked_for
from automation_pipeline.transcription.domain.requests import Requested
from automation_pipeline.transcription.domain.run import Priority, Standing


class RemoteFiches:
    def __init__(self, api: Api) -> None:
        self._api = api

    def mirrored(self, fiche_id: str) -> Mapping[str, object]:
        return data_of(self._api.get(f"/api/fiches/{fiche_id}/mirror"))


class RemoteTranscriptions:
    def __init__(self, api: Api) -> None:
        self._api = api

    def request(self, fiche_ids: Sequence[str], priority: Priority) -> Sequence[Requested]:
        keys: dict[str, str] = {}
        for fiche_id in dict.fromkeys(fiche_ids):
            asked = self._api.post(f"/api/transcriptions/{fiche_id}", query={"priority": priority.value})
            keys[fiche_id] = str(read(lambda asked=asked: asked["event_id"]))
        filed = {str(one["key"]): cast("str | None", one["run_id"]) for one in self._filed(list(keys.values()))}
        return [Requested(fiche_id, filed.get(key), key) for fiche_id, key in keys.items()]

    def followed(self, requested: Sequence[Requested], asked_at: datetime) -> Mapping[str, Standing | NeverBegun]:
        """The API knows itself when each was asked for."""
        del asked_at
        keys = [one.key for one in requested if one.key]
        found = {str(one["fiche_id"]): _outcome(one) for one in self._filed(keys)}
        return {fiche_id: outcome for fiche_id, outcome in found.items() if outcome is not None}

    def _filed(self, keys: Sequence[str]) -> Sequence[Document]:
        return asked_for(self._api, "transcriptions", keys)


def _outcome(one: Document) -> Standing | NeverBegun | None:
    if one["refused"] is not None:
        return NeverBegun(str(one["fiche_id"]), str(one["refused"]))
    standing = one["standing"]
    return None if standing is None else read(lambda: TypeAdapter(Standing).validate_python(standing))
