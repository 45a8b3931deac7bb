"""Tests of `automation api`: it serves until stopped, or prints a one-sentence error."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from automation_pipeline import simulator
from automation_pipeline.api import app
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--port", "70000"], 2, "Invalid value for '--port': "),
        (["--host", "192.0.2.7", "--port", "0"], 1, "The API cannot listen on 192.0.2.7:0: "),
        (
            ["--host", "no.such.host.invalid", "--port", "0"],
            1,
            "The API cannot listen on no.such.host.invalid:0: ",
        ),
    ],
)
def test_an_unusable_listen_address_is_reported(
    terminal: Terminal, arguments: list[str], code: int, sentence: str
) -> None:
    ended = terminal.run("api", *arguments)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (code, "", 1)
    assert ended.err.startswith(sentence)


def test_an_address_in_use_is_reported_in_one_sentence(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        terminal.export(API_PORT=str(port))
        ended = terminal.run("api")
    assert (ended.code, ended.err) == (
        1,
        f"The API cannot listen on 127.0.0.1:{port}: Address already in use.\n",
    )


def test_without_tables_the_error_names_the_upgrade_command(terminal: Terminal) -> None:
    (terminal.folder / "empty.db").touch()
    terminal.export(DATABASE_URL="sqlite:///empty.db")
    ended = terminal.run("api", "--port", "0")
    assert (ended.code, ended.err) == (
        1,
        "The database is empty: run `automation db upgrade` first.\n",
    )


def test_the_server_runs_until_it_gets_a_stop_signal(terminal: Terminal) -> None:
    command = [
        sys.executable,
        "-c",
        "from automation_pipeline.cli.main import main; main()",
        "api",
        "--port",
        "0",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            output = re.fullmatch(
                r"api listening on (http://127\.0\.0\.1:[0-9]+)\n", process.stdout.readline()
            )
            assert output is not None
            assert httpx.get(f"{output[1]}/health", timeout=60).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert "Traceback" not in process.stderr.read() if process.stderr else False
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ("", ("127.0.0.2", 3333)),
        ("--host ::1 --port 0", ("::1", 0)),
    ],
)
def test_options_override_the_configured_address(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, arguments: str, address: tuple[str, int]
) -> None:
    served: list[tuple[str, int]] = []
    monkeypatch.setattr(app, "serve", lambda _services, host, port: served.append((host, port)))
    terminal.export(API_HOST="127.0.0.2", API_PORT="3333")
    assert terminal.run("api", *arguments.split()).code == 0
    assert served == [address]


def test_the_simulator_gets_every_option(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[dict[str, object]] = []
    monkeypatch.setattr(simulator, "serve", lambda **options: served.append(options))
    assert terminal.run("simulator").code == 0
    terminal.run("simulator", "--exact", "--seed", "8", "--latency", "0.5", "--shop-products", "2")
    default, chosen = served
    assert default == {
        "host": "127.0.0.1",
        "port": 4010,
        "seed": 7,
        "fiches_per_day": 24,
        "vary": True,
        "latency": 0.0,
        "token": "sim-token",
        "speech_key": "sim-speech-key",
        "speech_per_minute": 0,
        "llm_key": "sim-llm-key",
        "llm_per_minute": 0,
        "pusher_app_id": "4010",
        "pusher_key": "sim-pusher-key",
        "pusher_secret": "sim-pusher-secret",
        "shop_token": "sim-shop-token",
        "shop_products": 40,
        "shop_variants": 3,
        "inpi_username": "sim-inpi@exemple.test",
        "inpi_password": "sim-inpi-password",
        "entreprise_token": "sim-entreprise-token",
    }
    changed = {"seed": 8, "vary": False, "latency": 0.5, "shop_products": 2}
    assert chosen == default | changed


def test_a_simulator_that_cannot_start_is_reported_in_one_sentence(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = terminal.run("simulator", "--port", str(taken.getsockname()[1]))
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (1, "", 1)
