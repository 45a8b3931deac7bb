"""Types for the values of settings. Error messages say what is wrong without showing the value."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from os import environ
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    HttpUrl,
    SecretStr,
    TypeAdapter,
    ValidationError,
)
from pydantic_settings import NoDecode

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.zones import zone


def http_address(value: str) -> str:
    """The address without surrounding blanks. Raises ValueError if it is not valid."""
    address = value.strip()
    try:
        parts = TypeAdapter(HttpUrl).validate_python(address)
    except ValidationError:
        raise ValueError("it must be an http:// or https:// address") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("it must be an address without user, query and fragment")
    return address


def _home(value: str) -> str:
    """The absolute path of the home folder. The default is the nearest folder with a workspace.yaml,
    or else a folder in the user's data directory."""
    if not value:
        return str(_project() or _user_data() / "automation-pipeline")
    try:
        home = Path(value).expanduser().absolute()
        if home.is_dir() or not home.exists():
            return str(home)
    except (OSError, RuntimeError):  # no access, or no such user
        pass
    raise ValueError("it must be a folder that this user can open")


def _project() -> Path | None:
    """None outside of every project, and if the working directory is unreadable or deleted."""
    with suppress(OSError):
        here = Path.cwd()
        folders = (here, *here.parents)
        return next((folder for folder in folders if (folder / "workspace.yaml").is_file()), None)
    return None


def _user_data() -> Path:
    chosen = Path(environ.get("XDG_DATA_HOME", ""))
    if chosen.is_absolute():
        return chosen
    try:
        return Path.home() / ".local" / "share"
    except RuntimeError:  # a container's user without a name and without HOME
        return Path("/.local/share")


def _checked(is_valid: Callable[[Any], bool], message: str) -> Callable[[Any], Any]:
    def check(value: object) -> object:
        if not is_valid(value):
            raise ValueError(message)
        return value

    return check


def _names_a_file(value: str) -> bool:
    path = value.removeprefix("sqlite:///").partition("?")[0]
    return bool(path.strip()) and ":memory:" not in path and "mode=memory" not in value


def _has_valid_port(value: str) -> bool:
    try:
        _ = urlsplit(value).port
    except ValueError:
        return False
    return True


def _time_zone(value: str) -> str:
    try:
        zone(value)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return value


def _stripped(value: SecretStr) -> SecretStr:
    return SecretStr(value.get_secret_value().strip())


def _listed(value: object) -> object:
    """Splits a text at its commas."""
    if isinstance(value, str):
        return tuple(entry.strip() for entry in value.split(",") if entry.strip())
    return value


def _origin(value: str) -> str:
    parts = urlsplit(http_address(value))
    if parts.path.strip("/"):
        raise ValueError("an origin is a scheme, a host and maybe a port, without a path")
    return f"{parts.scheme}://{parts.netloc}".lower()


SHORTEST_DAYS = 7
SHORTEST_TOKEN = 16
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# The parser's own error message would show part of the password.
_VALID_PORT = AfterValidator(
    _checked(
        _has_valid_port,
        "its host or port cannot be read; characters such as / in a password must be percent-encoded",
    )
)

HttpAddress = Annotated[str, AfterValidator(http_address)]
AlertShape = Literal["generic", "slack", "pagerduty"]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
# Fields of these types need validate_default=True. InHome needs a field automation_home before it.
Home = Annotated[str, AfterValidator(_home)]
InHome = AfterValidator(
    lambda value, info: value.replace("$AUTOMATION_HOME", info.data.get("automation_home", ""))
)
DatabaseUrl = Annotated[
    str,
    AfterValidator(
        _checked(
            lambda url: url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")),
            "it must start with sqlite:/// or postgresql://",
        )
    ),
    AfterValidator(
        _checked(
            lambda url: not url.startswith("sqlite:") or _names_a_file(url),
            "it must name a file: in memory, every command would see a database of its own",
        )
    ),
    AfterValidator(
        _checked(
            lambda url: not url.startswith("sqlite:///file:"), "it must name a file by its path"
        )
    ),
    _VALID_PORT,
    InHome,
]
RedisUrl = Annotated[
    str,
    AfterValidator(
        _checked(
            lambda url: url.startswith(("redis://", "rediss://", "unix://")),
            "it must start with redis://, rediss:// or unix://",
        )
    ),
    _VALID_PORT,
]
Token = Annotated[
    SecretStr,
    AfterValidator(_stripped),
    AfterValidator(
        _checked(
            lambda token: (
                token.get_secret_value().isascii() and token.get_secret_value().isprintable()
            ),
            "it holds characters that cannot be sent",
        )
    ),
]
# pydantic would also accept numbers, as seconds since 1970.
Day = Annotated[
    date,
    BeforeValidator(
        _checked(
            lambda value: not isinstance(value, str) or _DAY.fullmatch(value) is not None,
            "it must be a day written as YYYY-MM-DD",
        )
    ),
]
Temperature = Annotated[
    Annotated[float, Field(ge=0, le=2)] | None,
    BeforeValidator(lambda value: None if str(value).strip().lower() == "none" else value),
]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_listed)
]
LongToken = Annotated[
    Token,
    AfterValidator(
        _checked(
            lambda token: len(token) >= SHORTEST_TOKEN,
            f"each token must have at least {SHORTEST_TOKEN} characters",
        )
    ),
]
Tokens = Annotated[tuple[LongToken, ...], NoDecode, BeforeValidator(_listed)]
KeepDays = Annotated[
    int,
    Field(ge=0, le=3650),
    AfterValidator(
        _checked(
            lambda days: days == 0 or days >= SHORTEST_DAYS,
            f"it must be {SHORTEST_DAYS} days or more, or 0 to keep them for ever",
        )
    ),
]
