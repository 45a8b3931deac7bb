"""The client of the commands: this machine's database, or another machine's HTTP API (`--api`)."""

from contextvars import ContextVar
from dataclasses import dataclass

from automation_pipeline import bootstrap
from automation_pipeline.cli.client.local import LocalClient
from automation_pipeline.cli.client.ports import Client
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.settings import load_settings
from automation_pipeline.core.settings_types import http_address


@dataclass(frozen=True)
class _Options:
    url: str | None = None
    token: str | None = None


_NONE = _Options()
_options: ContextVar[_Options] = ContextVar("options", default=_NONE)


def choose(url: str | None, token: str | None) -> None:
    """For the commands that follow in this process."""
    if url is not None:
        try:
            url = http_address(url)
        except ValueError as error:
            raise InvalidInputError(f"--api cannot be used: {error}.") from None
    _options.set(_Options(url, token))


def client() -> Client:
    url = _url()
    if url is None:
        if _options.get().token is not None:
            raise InvalidInputError("--token is for another machine's API: say which with --api.")
        return LocalClient(bootstrap.services())
    from automation_pipeline.cli.client.remote import RemoteClient  # noqa: PLC0415  only where it is used

    return RemoteClient(bootstrap.remote_api(url, _token()), SystemClock())


def only_here(command: str) -> None:
    """InvalidInputError at another machine's desk."""
    if _url() is not None:
        raise InvalidInputError(
            f"`automation {command}` works on the machine where it is typed: leave out --api, and unset "
            "AUTOMATION_API_URL."
        )


def _url() -> str | None:
    return _options.get().url or load_settings().automation_api_url


def _token() -> str:
    given, kept = _options.get().token, load_settings().automation_api_token
    token = given or (kept.get_secret_value() if kept else None)
    if token is None:
        raise InvalidInputError(
            "The API wants a token: set AUTOMATION_API_TOKEN, or give one with --token."
        )
    if not (token.isascii() and token.isprintable()):
        raise InvalidInputError("The token for the API holds characters that cannot be sent.")
    return token.strip()
