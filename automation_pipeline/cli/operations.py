"""Operations of commands, which work on the local database or, with --api, through an HTTP API."""

import getpass
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, cast
from urllib.parse import quote

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

from automation_pipeline import bootstrap
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError, UpstreamError
from automation_pipeline.core.settings import load_settings
from automation_pipeline.core.settings_types import http_address
from automation_pipeline.storage.database import Database

Document = Mapping[str, object]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Row = TypeVar("Row")
PAGE = 500


@dataclass
class _Options:
    url: str | None = None
    token: str | None = None


_options = _Options()


def use_api(url: str | None, token: str | None) -> None:
    """Set --api and --token for the rest of this process."""
    if url is not None:
        try:
            url = http_address(url)
        except ValueError as error:
            raise InvalidInputError(f"--api cannot be used: {error}.") from None
    _options.url, _options.token = url, token


def api_url() -> str | None:
    """Return the URL of the API that commands use, or None for the local database."""
    url = _options.url or load_settings().automation_api_url
    if url is None and _options.token is not None:
        raise InvalidInputError("--token needs --api, which names the other machine's API.")
    return url


def require_local_machine(command: str) -> None:
    """Raises InvalidInputError if the command line uses an API."""
    if _options.url or load_settings().automation_api_url:
        raise InvalidInputError(
            f"`automation {command}` works only on the local machine: omit --api, and unset "
            "AUTOMATION_API_URL."
        )


def actor() -> str:
    """Return the operator's name, which runs and rules record."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, ImportError, OSError):  # users in containers may have no name
        return f"cli:uid-{os.getuid()}"


class WriteContext(TypedDict):
    database: Database
    clock: Clock
    actor: str


def write_context(services: Services) -> WriteContext:
    """Return the arguments of use cases that record the operator."""
    return {"database": services.database, "clock": services.clock, "actor": actor()}


class RemoteApi(Protocol):
    def call(
        self,
        method: str,
        path: str,
        *,
        query: Document,
        body: Document | None,
        repeatable: bool,
    ) -> Document:
        """Send a request and return its JSON object. Raises the AutomationError that the API reports."""
        ...


def remote_api() -> RemoteApi | None:
    """Return the API of --api or AUTOMATION_API_URL, or None without either."""
    url = api_url()
    if url is None:
        return None
    configured = load_settings().automation_api_token
    token = _options.token or (configured.get_secret_value() if configured else None)
    if token is None:
        raise InvalidInputError(
            "The API needs a token: set AUTOMATION_API_TOKEN, or pass one with --token."
        )
    if not (token.isascii() and token.isprintable()):
        raise InvalidInputError("The API token contains characters that cannot be sent.")
    return _connect(url, token.strip())


class HasId(Protocol):
    @property
    def id(self) -> int: ...


@lru_cache(maxsize=1)
def _connect(url: str, token: str) -> RemoteApi:
    return bootstrap.remote_api(url, token)


def operation(
    request: str, *, query: Collection[str] = (), whole: bool = False, repeatable: bool = True
) -> Callable[[Callable[Concatenate[Any, Arguments], Result]], Callable[Arguments, Result]]:
    """Decorate a function whose first parameter is the local services, or a `session` that reads the
    local database. The caller omits this argument. With --api, calls send `request` instead.

    `request` is a method and a path. Arguments fill the braces of the path; a part in brackets is
    omitted if its argument is None. The other arguments become query parameters for GET and DELETE
    or if `query` names them. Of the rest, `given` becomes the body; without it, the remaining
    arguments do, in camelCase. None is not sent. The return annotation parses the response's `data`,
    or the `whole` response.
    """
    method, path = request.split(" ", 1)

    def decorate(
        local: Callable[Concatenate[Any, Arguments], Result],
    ) -> Callable[Arguments, Result]:
        signature = inspect.signature(local)
        takes_session = "session" in signature.parameters

        @wraps(local)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            api, services = remote_api(), bootstrap.services()
            if api is None and takes_session:
                with services.database.reading() as session:
                    return local(session, *args, **kwargs)
            if api is None:
                return local(services, *args, **kwargs)
            bound = signature.bind(None, *args, **kwargs)
            bound.apply_defaults()
            _, *arguments = bound.arguments.items()
            sent = {name.strip("_"): value for name, value in arguments if value is not None}
            address = _address(path, sent)
            if method in {"GET", "DELETE"}:
                parameters, body = sent, None
            else:
                parameters = {name: sent.pop(name) for name in query if name in sent}
                body = sent.get("given", {to_camel(name): sent[name] for name in sent} or None)
            response = api.call(
                method,
                address,
                query=to_jsonable_python(parameters),
                body=to_jsonable_python(body, by_alias=True),
                repeatable=repeatable,
            )
            return cast("Result", _read(signature.return_annotation, response, whole=whole))

        return call

    return decorate


def every(
    page: Callable[..., Sequence[Row]], *, by: str = "after", start: int = 0, **chosen: object
) -> Iterator[Row]:
    """Yield all rows of a paginated list. The next page starts after the last id, or at an offset."""
    position = start
    while rows := page(**chosen, limit=PAGE, **{by: position}):
        yield from rows
        if len(rows) < PAGE:
            return
        position = position + PAGE if by == "offset" else cast("HasId", rows[-1]).id


def _address(path: str, sent: dict[str, object]) -> str:
    """Fill the path with its arguments, and remove them from `sent`."""
    optional = re.compile(r"\[(.*?{(\w+)}.*?)\]")
    path = optional.sub(lambda part: part[1] if part[2] in sent else "", path)
    return re.sub(r"{(\w+)}", lambda name: quote(str(sent.pop(name[1])), safe=""), path)


_LENIENT = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


@lru_cache
def _reader(kind: object) -> TypeAdapter[Any]:
    # Inside a tuple, the configuration applies to dataclasses too.
    wrapped: Any = tuple.__class_getitem__(kind)
    return TypeAdapter(wrapped, config=_LENIENT)


def _read(kind: object, response: Document, *, whole: bool) -> object:
    if kind is None:
        return None
    document = response if whole or "data" not in response else response["data"]
    try:
        [value] = _reader(kind).validate_python((document,), extra="ignore")
    except ValidationError:
        raise UpstreamError(
            "The API's answer cannot be parsed: its version differs from this command line."
        ) from None
    return value
