"""`python -m automation_pipeline.simulator`: the simulator without the operators' command line."""

import argparse
import sys

from automation_pipeline.simulator.cap import MAX_PER_MINUTE
from automation_pipeline.simulator.server import (
    DEFAULT_ENTREPRISE_TOKEN,
    DEFAULT_INPI_PASSWORD,
    DEFAULT_INPI_USERNAME,
    DEFAULT_LLM_KEY,
    DEFAULT_PUSHER_APP_ID,
    DEFAULT_PUSHER_KEY,
    DEFAULT_PUSHER_SECRET,
    DEFAULT_SHOP_TOKEN,
    DEFAULT_SPEECH_KEY,
    DEFAULT_TOKEN,
    SimulatorStartError,
    serve,
)


def main() -> int:
    options = _parser().parse_args()
    try:
        serve(**vars(options))
    except SimulatorStartError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m automation_pipeline.simulator",
        description="The external systems in one process, on loopback.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_port, default=0, help="0 chooses a free port")
    parser.add_argument("--seed", type=int, default=7, help="the seed of the simulated data")
    parser.add_argument(
        "--fiches-per-day", type=_fiches, default=24, help="sales on a full working day"
    )
    parser.add_argument(
        "--exact",
        dest="vary",
        action="store_false",
        help="every day has exactly this number of sales",
    )
    parser.add_argument("--latency", type=_latency, default=0.0, help="seconds before every answer")
    parser.add_argument("--token", default=DEFAULT_TOKEN, help="the bearer token of the CRM")
    parser.add_argument(
        "--speech-key", default=DEFAULT_SPEECH_KEY, help="the xi-api-key of speech-to-text"
    )
    parser.add_argument(
        "--speech-per-minute",
        type=_per_minute,
        default=0,
        help="the maximum of transcriptions per minute; 0 is no maximum",
    )
    parser.add_argument(
        "--llm-key", default=DEFAULT_LLM_KEY, help="the bearer key of the language model"
    )
    parser.add_argument(
        "--llm-per-minute",
        type=_per_minute,
        default=0,
        help="the maximum of completions per minute; 0 is no maximum",
    )
    parser.add_argument(
        "--pusher-app-id", default=DEFAULT_PUSHER_APP_ID, help="the application of realtime events"
    )
    parser.add_argument("--pusher-key", default=DEFAULT_PUSHER_KEY, help="its key")
    parser.add_argument(
        "--pusher-secret", default=DEFAULT_PUSHER_SECRET, help="its secret, which signs calls"
    )
    parser.add_argument(
        "--shop-token", default=DEFAULT_SHOP_TOKEN, help="the access token of the shop"
    )
    parser.add_argument(
        "--shop-products", type=int, default=40, help="the number of products of the shop"
    )
    parser.add_argument("--shop-variants", type=int, default=3, help="variants of each product")
    parser.add_argument(
        "--inpi-username", default=DEFAULT_INPI_USERNAME, help="the account at INPI's register"
    )
    parser.add_argument("--inpi-password", default=DEFAULT_INPI_PASSWORD, help="its password")
    parser.add_argument(
        "--entreprise-token", default=DEFAULT_ENTREPRISE_TOKEN, help="the token of API Entreprise"
    )
    return parser


def _port(text: str) -> int:
    return int(_within(text, 0, 65_535, whole=True))


def _fiches(text: str) -> int:
    return int(_within(text, 0, 50_000, whole=True))


def _latency(text: str) -> float:
    return _within(text, 0, 600, whole=False)


def _per_minute(text: str) -> int:
    return int(_within(text, 0, MAX_PER_MINUTE, whole=True))


def _within(text: str, low: int, high: int, *, whole: bool) -> float:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        kind = "a whole number" if whole else "a number"
        raise argparse.ArgumentTypeError(f"must be {kind} from {low} to {high}, not {text!r}")
    return number


if __name__ == "__main__":
    sys.exit(main())
