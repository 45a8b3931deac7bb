"""`make dev`: Dagster's UI and daemon beside the simulator, in one terminal. Ctrl-C ends all of it."""

import argparse
import signal
import subprocess
import sys

from outside import LLM_KEY, SPEECH_KEY, TOKEN, environment, simulator


def main() -> int:
    options = parse()
    # A shell that starts this in the background has SIGINT ignored, by the children too.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    try:
        with simulator("--port", options.simulator_port) as address:
            return work(address, options.port)
    except KeyboardInterrupt:
        return 0


def work(address: str, port: str) -> int:
    variables = environment(address)
    subprocess.run(["automation", "db", "upgrade"], env=variables, check=True)
    say(f"Dagster    http://127.0.0.1:{port}")
    say(f"Simulator  {address}")
    say("In another terminal, before `automation doctor`:")
    say(f"  export FICHE_API_BASE_URL={address} FICHE_API_AUTH_TOKEN={TOKEN}")
    say(f"  export ELEVENLABS_BASE_URL={address} ELEVENLABS_API_KEY={SPEECH_KEY}")
    say(f"  export LLM_BASE_URL={address}/v1 LLM_API_KEY={LLM_KEY}")
    with subprocess.Popen(["dagster", "dev", "-p", port, "--log-level", "warning"], env=variables) as dagster:
        try:
            return dagster.wait()
        finally:
            # On Ctrl-C the terminal has told Dagster already; asking twice is harmless, not asking is not.
            dagster.send_signal(signal.SIGINT)
            dagster.wait()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Dagster and the simulator in one terminal.")
    parser.add_argument("--port", default="3000", help="where Dagster's UI listens")
    parser.add_argument("--simulator-port", default="4010", help="where the simulator listens; 0 takes a free port")
    return parser.parse_args()


def say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
