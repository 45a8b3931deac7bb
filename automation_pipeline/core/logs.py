"""Masked log lines on standard error, as text or JSON, in UTC, with a correlation id."""

import json
import logging
import re
import sys
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, cast
from uuid import uuid4

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter

from automation_pipeline.core.masking import masked_document, masked_text, visible

# The tag of a Dagster run.
CORRELATION_TAG = "automation/correlation_id"

_VALID_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_current: ContextVar[str | None] = ContextVar("correlation_id", default=None)


def correlation_id() -> str | None:
    return _current.get()


def usable_id(given: str | None) -> str:
    """The given id if it is valid in headers, tags and logs; otherwise a new one."""
    return given if given and _VALID_ID.fullmatch(given) else uuid4().hex


@contextmanager
def correlated(with_id: str | None) -> Generator[None]:
    """None keeps the current id."""
    token = _current.set(with_id or _current.get())
    try:
        yield
    finally:
        _current.reset(token)


Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]
Event = MutableMapping[str, object]

PACKAGE = "automation_pipeline"
# They log every call or statement, with URLs and their queries.
NOISY = (
    "alembic",
    "asyncio",
    "httpcore",
    "httpx",
    "multipart",
    "pusher",
    "sqlalchemy",
    "urllib3",
    "uvicorn.access",
)
MAX_TRACE_LENGTH = 20_000
_FIRST_FIELDS = ("timestamp", "level", "logger", "event")
_TRACES = ("stack", "exception")
_PLAIN_WORD = re.compile(r"[^\s\"=]+")


def log(name: str) -> BoundLogger:
    """The logger of a module. Keyword arguments of its methods become fields of the line."""
    return cast(
        "BoundLogger",
        structlog.wrap_logger(
            logging.getLogger(name),
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.stdlib.PositionalArgumentsFormatter(),
                _as_record,
            ],
            wrapper_class=BoundLogger,
            cache_logger_on_first_use=True,
        ),
    )


def configure_logs(
    level: Level, form: Format, *, of: Literal["process", "package"] = "process"
) -> None:
    """A repeated call replaces the earlier configuration. With `of="package"`, only the lines of this
    package are formatted, and those of the host process are unchanged."""
    package, root = logging.getLogger(PACKAGE), logging.getLogger()
    for logger in (package, root):
        for handler in [each for each in logger.handlers if isinstance(each, _StandardError)]:
            logger.removeHandler(handler)
    handler = _StandardError()
    handler.setFormatter(_formatter(form))
    target = root if of == "process" else package
    target.addHandler(handler)
    target.setLevel(level.upper())
    package.setLevel(level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


class _StandardError(logging.Handler):
    """Writes to `sys.stderr` of the moment, because tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:  # noqa: BLE001  a failure to log must not end the work
            self.handleError(record)


def _formatter(form: Format) -> ProcessorFormatter:
    return ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _with_fields,
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
        ],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            _masked,
            (lambda _logger, _method, event: visible(json.dumps(event, ensure_ascii=False)))
            if form == "json"
            else _text_line,
        ],
    )


def _as_record(
    _logger: object, _method: str, event: Event
) -> tuple[tuple[object], dict[str, object]]:
    """The fields are one attribute of the record, so that their names cannot clash with its own."""
    message = event.pop("event", "")
    known = {
        name: event.pop(name) for name in ("exc_info", "stack_info", "stacklevel") if name in event
    }
    return (message,), {**known, "extra": {"fields": dict(event)}}


def _with_fields(_logger: object, _method: str, event: Event) -> Event:
    fields = cast("Mapping[str, object]", getattr(event["_record"], "fields", {}))
    # A line about another request has the id of that request among its fields.
    current = None if "correlation_id" in fields else correlation_id()
    return {**fields, **({"correlation_id": current} if current else {}), **event}


def _masked(_logger: object, _method: str, event: Event) -> Event:
    traces = {
        # The end of a traceback names the error.
        name: masked_text(str(event.pop(name))[-MAX_TRACE_LENGTH:], MAX_TRACE_LENGTH)
        for name in _TRACES
        if name in event
    }
    found = masked_document(event)
    first = {name: found.pop(name) for name in _FIRST_FIELDS if name in found}
    return {**first, **found, **traces}


def _text_line(_logger: object, _method: str, event: Event) -> str:
    """Escapes line breaks and control characters, so that logged text can neither fake a log line
    nor control the terminal."""
    fields = [
        f"{name}={_shown(value)}"
        for name, value in event.items()
        if name not in (*_FIRST_FIELDS, *_TRACES)
    ]
    parts = [
        str(event["timestamp"]),
        f"{event['level']:<7}",
        f"{event['logger']}:",
        str(event["event"]),
    ]
    traces = [line for name in _TRACES if name in event for line in str(event[name]).split("\n")]
    return "\n".join(map(visible, [" ".join([*parts, *fields]), *traces]))


def _shown(value: object) -> str:
    """A single word as it is; every other value as JSON."""
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)
