"""Helpers of the remote clients: paths, pages and answers of the HTTP API."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar, cast

from pydantic import ValidationError

from automation_pipeline.cli.operations import RemoteApi
from automation_pipeline.core.errors import UpstreamError
from automation_pipeline.core.json_model import JsonModel

Document = Mapping[str, object]
Model = TypeVar("Model", bound=JsonModel)
Result = TypeVar("Result")
PAGE = 1000


class Api(Protocol):
    """Paths begin with a slash; answers are whole JSON objects. A refusal is raised as an
    AutomationError."""

    def get(self, path: str, query: Document | None = None) -> Document: ...
    def post(
        self,
        path: str,
        body: Document | None = None,
        *,
        query: Document | None = None,
        repeatable: bool = True,
    ) -> Document: ...
    def put(self, path: str, body: Document, *, query: Document | None = None) -> Document: ...
    def patch(self, path: str, body: Document) -> Document: ...
    def delete(self, path: str, *, query: Document | None = None) -> Document: ...


def data_of(answer: Document) -> Document:
    data = answer.get("data")
    if not isinstance(data, Mapping):
        raise _strange()
    return cast("Document", data)


def list_of(answer: Document) -> Sequence[Document]:
    data = answer.get("data")
    if not isinstance(data, list):
        raise _strange()
    return cast("Sequence[Document]", data)


def every_page(api: Api, path: str, query: Document | None = None) -> Iterator[Document]:
    """All entries of a list that is answered in pages."""
    offset = 0
    while True:
        page = list_of(api.get(path, {**(query or {}), "limit": PAGE, "offset": offset}))
        yield from page
        if len(page) < PAGE:
            return
        offset += PAGE


def as_model(model: type[Model], document: Document) -> Model:
    """Of a document that says more than the model: the rest is left out."""
    known = {field.alias or name for name, field in model.model_fields.items()}
    return read(
        lambda: model.model_validate(
            {name: value for name, value in document.items() if name in known}
        )
    )


def read(reading: Callable[[], Result]) -> Result:
    """What `reading` makes of an answer."""
    try:
        return reading()
    except (ValidationError, KeyError, TypeError, ValueError):
        raise _strange() from None


def instant(value: object) -> datetime:
    return datetime.fromisoformat(str(value))


def instant_or_none(value: object) -> datetime | None:
    return None if value is None else instant(value)


def _strange() -> UpstreamError:
    return UpstreamError(
        "The API's answer cannot be read: it is of another version than this command line."
    )


AT_ONCE = 50


def asked_for(api: Api, what: str, keys: Sequence[str]) -> Sequence[Document]:
    """In the order in which they were filed, as far as they are known and visible."""
    found: list[Document] = []
    for start in range(0, len(keys), AT_ONCE):
        found += list_of(api.get(f"/api/requests/{what}", {"key": keys[start : start + AT_ONCE]}))
    return found


class OldApi:
    """Until the last package has operations."""

    def __init__(self, api: "RemoteApi") -> None:
        self._api = api

    def _call(
        self,
        method: str,
        path: str,
        query: Document | None,
        body: Document | None = None,
        *,
        repeatable: bool = True,
    ) -> Document:
        return self._api.call(method, path, query=query or {}, body=body, repeatable=repeatable)

    def get(self, path: str, query: Document | None = None) -> Document:
        return self._call("GET", path, query)

    def post(
        self,
        path: str,
        body: Document | None = None,
        *,
        query: Document | None = None,
        repeatable: bool = True,
    ) -> Document:
        return self._call("POST", path, query, body, repeatable=repeatable)

    def put(self, path: str, body: Document, *, query: Document | None = None) -> Document:
        return self._call("PUT", path, query, body)

    def patch(self, path: str, body: Document) -> Document:
        return self._call("PATCH", path, None, body)

    def delete(self, path: str, *, query: Document | None = None) -> Document:
        return self._call("DELETE", path, query)
