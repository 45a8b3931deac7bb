"""Log output: destination, format, correlation id, and masking."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from automation_pipeline.core.logs import NOISY, PACKAGE, configure_logs, correlated, log, usable_id

_log = log(f"{PACKAGE}.somewhere")


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Logging is configured per process: restore it after each test."""
    loggers = [logging.getLogger(name) for name in (None, PACKAGE, *NOISY)]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    output = capsys.readouterr()
    assert output.out == "", "standard output is reserved for results"
    return [json.loads(line) for line in output.err.splitlines()]


def test_a_line_is_one_json_object_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    with correlated("request-1"):
        _log.info("The CRM answered", provider="crm", name="é", message="b", tries=2)
    written = capsys.readouterr().err
    assert '"name": "é"' in written
    line = json.loads(written)
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    at = datetime.fromisoformat(line.pop("timestamp"))
    assert at.tzinfo == UTC
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    assert line == {
        "level": "info",
        "logger": "automation_pipeline.somewhere",
        "event": "The CRM answered",
        "provider": "crm",
        "name": "é",
        "message": "b",
        "tries": 2,
        "correlation_id": "request-1",
    }


def test_a_line_about_another_request_keeps_its_correlation_id(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs("info", "json")
    with correlated("of-the-run"):
        _log.info("Done", correlation_id="of-the-requester")
        _log.info("Done")
    assert [line["correlation_id"] for line in lines(capsys)] == ["of-the-requester", "of-the-run"]


def test_a_text_log_line_cannot_be_split_by_its_content(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs("info", "text")
    _log.warning("It is\nover: %s", "100 %", who="Anna É", empty="", word="x", many=[1, 2])
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert output.endswith(
        'Z warning automation_pipeline.somewhere: It is\\nover: 100 % who="Anna É" empty="" word=x many=[1, 2]\n'
    )


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_and_personal_data_are_masked_everywhere(
    form: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("debug", form)
    headers = {"Authorization": "Bearer hush", "Accept": "*/*"}
    _log.debug(
        "Sent Bearer hush to anna.hush@host.test", headers=headers, apiKey="hush", total_tokens=12
    )
    logging.getLogger("other").error("token=%s", "hush")
    try:
        raise ValueError("password=hush")
    except ValueError:
        _log.exception("It broke")
    output = capsys.readouterr().err
    assert "hush" not in output
    assert "12" in output
    assert "ValueError" in output


def test_the_end_of_a_long_traceback_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    try:
        raise ValueError("x" * 50_000 + " the end")
    except ValueError:
        _log.exception("It broke")
    [line] = lines(capsys)
    assert line["exception"].endswith("the end")
    assert len(line["exception"]) <= 20_000


@pytest.mark.parametrize(
    ("level", "received"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_lines_below_the_level_are_omitted(
    level: Any, received: int, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(level, "json")
    for write in (_log.debug, _log.info, _log.warning, _log.error):
        write("message")
    assert len(lines(capsys)) == received
    library = logging.getLogger("library")
    for write in (library.debug, library.info, library.warning, library.error):
        write("message")
    assert len(lines(capsys)) == received


def test_noisy_libraries_log_warnings_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test may have configured this logger not to propagate.
    monkeypatch.setattr(logging.getLogger("uvicorn.access"), "propagate", True)
    configure_logs("debug", "json")
    for name in NOISY:
        logging.getLogger(name).info("GET https://host.test/?token=hush")
        logging.getLogger(name).warning("wrong")
    assert [line["logger"] for line in lines(capsys)] == list(NOISY)


def test_repeated_configuration_writes_every_line_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for form in ("text", "json"):
        configure_logs("info", form)
        configure_logs("info", form, of="package")
        configure_logs("info", form)
    _log.info("once")
    assert len(lines(capsys)) == 1
    configure_logs("error", "json", of="package")
    configure_logs("info", "json")
    _log.info("at the new level")
    assert len(lines(capsys)) == 1


def test_a_failure_to_write_a_line_does_not_reach_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure_logs("info", "json")
    failed: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.Handler, "handleError", lambda _self, record: failed.append(record))
    monkeypatch.setattr("sys.stderr", None)
    _log.info("lost")
    assert [record.getMessage() for record in failed] == ["lost"]


def test_an_invalid_correlation_id_is_replaced_by_a_new_one() -> None:
    assert usable_id("a.B_1:-") == "a.B_1:-"
    assert usable_id("x" * 128) == "x" * 128
    for given in (None, "", "two words", "x" * 129):
        assert len(usable_id(given)) == 32
    assert usable_id(None) != usable_id(None)


def test_in_a_host_process_only_lines_of_the_package_are_formatted(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    configure_logs("info", "json", of="package")
    logging.getLogger("dagster").error("from Dagster")
    _log.warning("own: %s", "value")
    assert [line["event"] for line in lines(capsys)] == ["own: value"]
    assert "own: value" in caplog.messages, "handlers of the root logger get the line too"


def test_before_it_is_configured_nothing_reaches_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _log.warning("early: %s", "value", field=1)
    assert capsys.readouterr().out == ""
