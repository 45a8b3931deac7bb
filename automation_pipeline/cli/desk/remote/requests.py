"""What became of what was asked for, by the API: some keys at a time, so that no address grows too long."""

from collections.abc import Sequence

from automation_pipeline.cli.desk.remote.api import Api, Document, list_of

AT_ONCE = 50


def asked_for(api: Api, what: str, keys: Sequence[str]) -> Sequence[Document]:
    """In the order in which they were filed, as far as they are known and ours to see."""
    found: list[Document] = []
    for start in range(0, len(keys), AT_ONCE):
        found += list_of(api.get(f"/api/requests/{what}", {"key": keys[start : start + AT_ONCE]}))
    return found
