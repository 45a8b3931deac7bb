"""What single fields of schedules and selections must be. Each rule answers the value as it is kept."""

import re
from collections.abc import Iterable
from datetime import date
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field, HttpUrl, SecretStr, TypeAdapter, WithJsonSchema

from automation_pipeline.core.cron import Cron
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import ID_SCHEMA, Id
from automation_pipeline.core.wall_clock import zone

LONGEST_KEY = 1000


def not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _known_zone(name: str) -> str:
    try:
        zone(name)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return name


def _readable_cron(expression: str | None) -> str | None:
    if not expression:
        return None
    try:
        Cron.parse(expression)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return expression


def _time_of_day(text: str | None) -> str | None:
    if not text:
        return None
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise ValueError("must be a time of day between 00:00 and 23:59")
    return text


def _web_address(url: str | None) -> str | None:
    if not url:
        return None
    TypeAdapter(HttpUrl).validate_python(url)
    return url


def _email(address: str) -> str:
    if not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", address):
        raise ValueError("is not an e-mail address")
    return address


def _not_the_mask(key: SecretStr | None) -> SecretStr | None:
    """A schedule is shown with its key masked: who sends that back must not lose the key."""
    if key is None or not key.get_secret_value():
        return None
    if not key.get_secret_value().strip("*"):
        raise ValueError("is the mask of a key, not a key: leave it out to keep the stored one")
    if len(key) > LONGEST_KEY:
        raise ValueError(f"must have at most {LONGEST_KEY} characters")
    return key


def _day(text: str | None) -> str | None:
    return written(day_of(text)) if text else None


def written(day: date) -> str:
    return f"{day:%d/%m}/{day.year:04}"


def day_of(text: str) -> date:
    """The day that DD/MM/YYYY or YYYY-MM-DD names; ValueError for anything else."""
    found = re.fullmatch(r"(?a:(\d\d)/(\d\d)/(\d{4})|(\d{4})-(\d\d)-(\d\d))", text)
    if found is None:
        raise ValueError("must be a day as DD/MM/YYYY or YYYY-MM-DD")
    parts = [int(part) for part in found.groups() if part]
    year, month, day = parts if "-" in text else reversed(parts)
    if year == 0 or not _exists(year, month, day):
        raise ValueError(f"{text} is not a day of the calendar")
    return date(year, month, day)


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _none_is_empty(given: object) -> object:
    return () if given is None else given


def ids_in(entries: Iterable[str]) -> list[str]:
    """Every id in its order, repeats included. One entry may hold several, separated by blanks or commas."""
    return " ".join(entries).replace(",", " ").split()


def _one_by_one(given: object) -> object:
    if not isinstance(given, list | tuple):
        return _none_is_empty(given)
    entries = cast("list[object]", given)
    texts = [entry for entry in entries if isinstance(entry, str)]
    return ids_in(texts) if len(texts) == len(entries) else entries


def _without_blanks(given: object) -> object:
    if not isinstance(given, list | tuple):
        return _none_is_empty(given)
    entries = [entry.strip() if isinstance(entry, str) else entry for entry in cast("list[object]", given)]
    return [entry for entry in entries if entry != ""]


def _number_or_digits(given: object) -> object:
    if isinstance(given, bool | float) or (isinstance(given, str) and not re.fullmatch(r"(?a:\d+)", given)):
        raise ValueError("must be a whole number, or its digits as a string")
    return given


def _once_each(ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))


Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
TimeZone = Annotated[str, AfterValidator(_known_zone)]
CronText = Annotated[str | None, Field(max_length=255), AfterValidator(_readable_cron)]
TimeOfDay = Annotated[str | None, AfterValidator(_time_of_day)]
WebAddress = Annotated[str | None, AfterValidator(_web_address)]
ApiKey = Annotated[SecretStr | None, AfterValidator(_not_the_mask)]
Day = Annotated[str | None, AfterValidator(_day)]
Name = Annotated[str, Field(max_length=255)]
Email = Annotated[str, Field(max_length=320), AfterValidator(_email)]
Emails = Annotated[tuple[Email, ...], Field(max_length=1000), BeforeValidator(_without_blanks)]
FicheId = Annotated[str, Field(max_length=64)]
FicheIds = Annotated[tuple[FicheId, ...], Field(max_length=10_000), BeforeValidator(_one_by_one)]
Groupes = Annotated[tuple[Name, ...], Field(max_length=1000), BeforeValidator(_without_blanks)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_none_is_empty)]
TrimmedTexts = Annotated[tuple[str, ...], BeforeValidator(_without_blanks)]
KnownId = Annotated[Id, Field(ge=1), BeforeValidator(_number_or_digits), WithJsonSchema(ID_SCHEMA, mode="validation")]
KnownIds = Annotated[
    tuple[KnownId, ...], Field(max_length=1000), AfterValidator(_once_each), BeforeValidator(_none_is_empty)
]
