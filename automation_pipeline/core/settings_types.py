"""Types of settings' values, each with a sentence for a wrong value. No sentence shows the value."""

import re
from datetime import date
from os import environ
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    HttpUrl,
    SecretStr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_settings import NoDecode

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.zones import zone


def http_address(value: str) -> str:
    """Stripped. ValueError says what it must be."""
    address = value.strip()
    try:
        parts = TypeAdapter(HttpUrl).validate_python(address)
    except ValidationError:
        raise ValueError("it must be an http:// or https:// address") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("it must be an address without user, query and fragment")
    return address


def _home(value: str) -> str:
    """An absolute path. By default the nearest folder with a workspace.yaml, otherwise one in the
    user's data directory."""
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
    """None outside of every project, and in a folder that cannot be read or is gone."""
    try:
        here = Path.cwd()
        return next(
            (folder for folder in (here, *here.parents) if (folder / "workspace.yaml").is_file()),
            None,
        )
    except OSError:
        return None


def _user_data() -> Path:
    chosen = Path(environ.get("XDG_DATA_HOME", ""))
    if chosen.is_absolute():
        return chosen
    try:
        return Path.home() / ".local" / "share"
    except RuntimeError:  # a container's user without a name and without HOME
        return Path("/.local/share")


def _in_home(value: str, info: ValidationInfo) -> str:
    """Replaces the name AUTOMATION_HOME by its path."""
    return value.replace("$AUTOMATION_HOME", info.data.get("automation_home", ""))


def _database_url(value: str) -> str:
    if not value.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise ValueError("it must start with sqlite:/// or postgresql://")
    return _with_a_file(value) if value.startswith("sqlite:") else _with_readable_port(value)


def _with_a_file(value: str) -> str:
    path = value.removeprefix("sqlite:///").partition("?")[0]
    if not path.strip() or ":memory:" in path or "mode=memory" in value:
        raise ValueError(
            "it must name a file: in memory, every command would see a database of its own"
        )
    if path.startswith("file:"):
        raise ValueError("it must name a file by its path")
    return value


def _redis_url(value: str) -> str:
    if not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("it must start with redis://, rediss:// or unix://")
    return _with_readable_port(value)


def _time_zone(value: str) -> str:
    try:
        zone(value)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return value


def _with_readable_port(value: str) -> str:
    try:
        _ = urlsplit(value).port
    except ValueError:  # its text would show a piece of the password
        raise ValueError(
            "its host or port cannot be read; characters such as / in a password must be percent-encoded"
        ) from None
    return value


def _token(value: SecretStr) -> SecretStr:
    token = value.get_secret_value().strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("it holds characters that cannot be sent")
    return SecretStr(token)


def _written_day(value: object) -> object:
    # pydantic takes numbers for days too, as seconds since 1970
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("it must be a day written as YYYY-MM-DD")
    return value


def _origins(value: object) -> object:
    return (
        tuple(origin.strip() for origin in value.split(",") if origin.strip())
        if isinstance(value, str)
        else value
    )


def _origin(value: str) -> str:
    parts = urlsplit(http_address(value))
    if parts.path.strip("/"):
        raise ValueError("an origin is a scheme, a host and maybe a port, without a path")
    return f"{parts.scheme}://{parts.netloc}".lower()


def _listed(value: object) -> object:
    """From a text with commas, or from a list."""
    return (
        [entry.strip() for entry in value.split(",") if entry.strip()]
        if isinstance(value, str)
        else value
    )


def _long_enough(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < 16:
        raise ValueError("each token must have at least 16 characters")
    return value


def _none_as_word(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


SHORTEST_DAYS = 7


def _a_week_or_for_ever(days: int) -> int:
    if 0 < days < SHORTEST_DAYS:
        raise ValueError(f"it must be {SHORTEST_DAYS} days or more, or 0 to keep them for ever")
    return days


HttpAddress = Annotated[str, AfterValidator(http_address)]
AlertShape = Literal["generic", "slack", "pagerduty"]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
# Fields of these kinds need validate_default=True, and InHome a field automation_home before it.
Home = Annotated[str, AfterValidator(_home)]
InHome = AfterValidator(_in_home)
DatabaseUrl = Annotated[str, AfterValidator(_database_url), InHome]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
Token = Annotated[SecretStr, AfterValidator(_token)]
Day = Annotated[date, BeforeValidator(_written_day)]
Temperature = Annotated[Annotated[float, Field(ge=0, le=2)] | None, BeforeValidator(_none_as_word)]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_origins)
]
Tokens = Annotated[
    tuple[Annotated[Token, AfterValidator(_long_enough)], ...], NoDecode, BeforeValidator(_listed)
]
KeepDays = Annotated[int, Field(ge=0, le=3650), AfterValidator(_a_week_or_for_ever)]
