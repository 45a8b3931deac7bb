"""Where commands work: in this machine's database, or at the HTTP API that `--api` or
AUTOMATION_API_URL names."""

from contextvars import ContextVar
from dataclasses import dataclass

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
    """Applies to the commands that follow in this process."""
    if url is not None:
        try:
            url = http_address(url)
        except ValueError as error:
            raise InvalidInputError(f"--api cannot be used: {error}.") from None
    _options.set(_Options(url, token))


def api_url() -> str | None:
    """None stands for this machine's database."""
    url = _options.get().url or load_settings().automation_api_url
    if url is None and _options.get().token is not None:
        raise InvalidInputError("--token is for another machine's API: say which with --api.")
    return url


def api_token() -> str:
    configured = load_settings().automation_api_token
    token = _options.get().token or (configured.get_secret_value() if configured else None)
    if token is None:
        raise InvalidInputError(
            "The API wants a token: set AUTOMATION_API_TOKEN, or give one with --token."
        )
    if not (token.isascii() and token.isprintable()):
        raise InvalidInputError("The token for the API holds characters that cannot be sent.")
    return token.strip()


def only_here(command: str) -> None:
    """Raises InvalidInputError when the command line works with an API."""
    if _options.get().url or load_settings().automation_api_url:
        raise InvalidInputError(
            f"`automation {command}` works on the machine where it is typed: leave out --api, and unset "
            "AUTOMATION_API_URL."
        )
