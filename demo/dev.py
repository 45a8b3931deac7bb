"""`make dev`: runs Dagster's UI and daemon, the HTTP API and the simulator in one terminal. Ctrl-C ends
all of them."""

import argparse
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from simulated_systems import LLM_KEY, SHOP_TOKEN, SPEECH_KEY, TOKEN, environment, simulator


def main() -> int:
    options = parse()
    # A background job of a shell ignores SIGINT, and so do its children.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with simulator("--port", options.simulator_port) as address:
            return work(address, options)
    except KeyboardInterrupt:
        return 0


def work(address: str, options: argparse.Namespace) -> int:
    token = f"dev-{secrets.token_urlsafe(24)}"
    variables = environment(address, API_AUTH_TOKENS=token)
    subprocess.run(["automation", "db", "upgrade"], env=variables, check=True)
    with api(variables, options.api_port) as url:
        say(f"Dagster    http://127.0.0.1:{options.port}")
        say(f"HTTP API   {url}, described at {url}/docs")
        say(f"Simulator  {address}")
        say("To use `automation` in another terminal with this database:")
        say(f"  export FICHE_API_BASE_URL={address} FICHE_API_AUTH_TOKEN={TOKEN}")
        say(f"  export ELEVENLABS_BASE_URL={address} ELEVENLABS_API_KEY={SPEECH_KEY}")
        say(f"  export LLM_BASE_URL={address}/v1 LLM_API_KEY={LLM_KEY}")
        say(f"  export SHOP_API_BASE_URL={address} SHOP_API_TOKEN={SHOP_TOKEN}")
        say("To use `automation` on any machine through the API:")
        say(f"  export AUTOMATION_API_URL={url} AUTOMATION_API_TOKEN={token}")
        return dagster(variables, options.port)


@contextmanager
def api(variables: Mapping[str, str], port: str) -> Generator[str]:
    """The address of the API while it runs."""
    command = ["automation", "api", "--port", port]
    environment_ = {"LOG_LEVEL": "warning", **variables}
    with subprocess.Popen(command, env=environment_, stdout=subprocess.PIPE, text=True) as process:
        try:
            output = process.stdout.readline() if process.stdout else ""
            found = re.search(r"http://\S+", output)
            if found is None:
                raise SystemExit("The HTTP API did not start: try another port with --api-port.")
            threading.Thread(
                target=shutil.copyfileobj, args=(process.stdout, sys.stdout), daemon=True
            ).start()
            yield found[0]
        finally:
            process.terminate()


def dagster(variables: Mapping[str, str], port: str) -> int:
    with subprocess.Popen(
        ["dagster", "dev", "-p", port, "--log-level", "warning"], env=variables
    ) as process:
        try:
            return process.wait()
        finally:
            # On Ctrl-C, the terminal has already sent this signal to Dagster. After another error it has
            # not, and a second signal is harmless.
            process.send_signal(signal.SIGINT)
            process.wait()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Dagster, the HTTP API and the simulator in one terminal."
    )
    parser.add_argument("--port", default="3000", help="where Dagster's UI listens")
    parser.add_argument(
        "--api-port", default="3002", help="where the HTTP API listens; 0 takes a free port"
    )
    parser.add_argument(
        "--simulator-port", default="4010", help="where the simulator listens; 0 takes a free port"
    )
    return parser.parse_args()


def say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
