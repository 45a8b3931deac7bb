"""Start and stop the simulator as a process."""

import signal
import socket
import subprocess
import sys

import httpx

from automation_pipeline_tests.cases import every_case

COMMAND = [sys.executable, "-m", "automation_pipeline.simulator"]


@every_case("stop", [signal.SIGTERM, signal.SIGINT])
def test_the_simulator_prints_its_address_and_stops_with_a_hanging_call(
    stop: signal.Signals,
) -> None:
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        url = line.removeprefix("simulator listening on ").strip()
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/health").status_code == 200
        httpx.post(f"{url}/_sim/faults", json={"route": "crm.health", "hang": True})
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as hanging:
            hanging.sendall(b"GET /health HTTP/1.1\r\nHost: simulator\r\n\r\n")
            while not httpx.get(f"{url}/_sim/calls").json()["routes"]["crm.health"]["in_flight"]:
                pass
            process.send_signal(stop)
            rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (0, "", "")


@every_case(
    ("flags", "message"),
    [
        (["--porte", "1"], "unrecognized arguments: --porte 1"),
        (
            ["--port", "70000"],
            "argument --port: must be a whole number from 0 to 65535, not '70000'",
        ),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--latency", "nan"], "argument --latency: must be a number from 0 to 600, not 'nan'"),
        (
            ["--speech-per-minute", "-1"],
            "argument --speech-per-minute: must be a whole number from 0 to 1000000, not '-1'",
        ),
        (
            ["--fiches-per-day", "-3"],
            "argument --fiches-per-day: must be a whole number from 0 to 50000, not '-3'",
        ),
    ],
)
def test_a_wrong_flag_is_named_and_ends_with_2(flags: list[str], message: str) -> None:
    ended = subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith(message)


def test_a_busy_port_is_one_sentence_and_ends_with_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*COMMAND, "--port", str(port)], capture_output=True, text=True, check=False, timeout=60
        )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert (
        ended.stderr
        == f"The simulator cannot listen on 127.0.0.1:{port}: Address already in use.\n"
    )


def test_an_impossible_shop_is_one_sentence_and_ends_with_1() -> None:
    flags = ["--shop-products", "50000", "--shop-variants", "5"]
    ended = subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "A simulated shop has at most 200000 variants, not 250000.\n"
