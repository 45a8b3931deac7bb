"""Starts the simulator as a process, and controls it over HTTP."""

import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

TOKEN = "sim-token"
LLM_KEY = "sim-llm-key"
SHOP_TOKEN = "sim-shop-token"
INPI_USERNAME, INPI_PASSWORD = "sim-inpi@exemple.test", "sim-inpi-password"
ENTREPRISE_TOKEN = "sim-entreprise-token"
PUBLIC_BODY = "13002526500013"
REGISTRY_LIMITS: Mapping[str, object] = {
    "search_per_second": 7,
    "inpi_per_minute": 180,
    "inpi_per_day": 10_000,
    "inpi_logins_per_30_seconds": 5,
    "inpi_ban_seconds": 600,
    "inpi_token_seconds": 3600,
    "entreprise_per_minute": 250,
    "young_at_inpi": False,
}
NO_REGISTRY_LIMITS: Mapping[str, object] = {
    **REGISTRY_LIMITS,
    "search_per_second": 0,
    "inpi_per_minute": 0,
    "inpi_per_day": 0,
    "inpi_logins_per_30_seconds": 0,
    "entreprise_per_minute": 0,
}
PUSHER_APP_ID, PUSHER_KEY, PUSHER_SECRET = "4010", "sim-pusher-key", "sim-pusher-secret"
_COMMAND = [sys.executable, "-m", "automation_pipeline.simulator", "--port", "0"]
_READY_LINE = "simulator listening on "
# Calls to loopback use plain HTTP. Without this, httpx loads all certificates for every call.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextmanager
def running_simulator(*options: str) -> Iterator[str]:
    """Start the simulator, and yield its URL. It ends with the block."""
    with subprocess.Popen([*_COMMAND, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            assert line.startswith(_READY_LINE), f"The simulator did not start: {line!r}"
            yield line.removeprefix(_READY_LINE).strip()
        finally:
            process.terminate()


def reset(url: str) -> None:
    """Remove recorded calls, faults and latency."""
    _post(url, "reset", {})
    _post(url, "latency", {"seconds": 0})


def add_faults(url: str, *rules: Mapping[str, object]) -> None:
    _post(url, "faults", list(rules))


def clear_faults(url: str) -> None:
    httpx.delete(f"{url}/_sim/faults", verify=NO_CERTIFICATES).raise_for_status()


def call_count(url: str, item: str, route: str = "crm.details") -> int:
    """The number of calls of the route for the item."""
    answer = httpx.get(
        f"{url}/_sim/calls", params={"route": route, "item": item}, verify=NO_CERTIFICATES
    ).raise_for_status()
    return answer.json()["routes"][route]["items"][item]


def configure_model(url: str, **settings: float) -> None:
    """Set any of `inventions` (a share), `context_characters` and `per_minute` (0: no limit)."""
    httpx.put(f"{url}/_sim/llm", json=settings, verify=NO_CERTIFICATES).raise_for_status()


def model_totals(url: str) -> Any:  # Any: JSON
    """Totals of the simulated language model: `calls`, and the tokens and `items` that it `answered`."""
    return httpx.get(f"{url}/_sim/llm", verify=NO_CERTIFICATES).raise_for_status().json()


def published_events(url: str, **filters: str) -> Any:  # Any: JSON
    """`channels`, `name` and `data` of the events that the simulated Pusher received, in order."""
    parameters = {"limit": "200000", **filters}
    return (
        httpx.get(f"{url}/_sim/pusher", params=parameters, verify=NO_CERTIFICATES)
        .raise_for_status()
        .json()["events"]
    )


def configure_shop(url: str, **settings: object) -> None:
    """Set any of `products`, `variants_per_product`, `currency`, `maximum` and `restore_rate`."""
    httpx.put(f"{url}/_sim/shop", json=settings, verify=NO_CERTIFICATES).raise_for_status()


def shop_totals(url: str, **filters: str) -> Any:  # Any: JSON
    """Totals of the simulated shop: settings, `level` of the bucket, `calls`, `throttled`, `writes` per
    variant; with `variant`, its `history`."""
    return (
        httpx.get(f"{url}/_sim/shop", params=filters, verify=NO_CERTIFICATES)
        .raise_for_status()
        .json()
    )


def edit_variant(url: str, variant_id: str, price: str, **compare_at: str | None) -> None:
    """Change a price as an editor of the shop would."""
    _post(url, "shop/variants", {"id": variant_id, "price": price, **compare_at})


def remove_variant(url: str, variant_id: str) -> None:
    httpx.delete(
        f"{url}/_sim/shop/variants/{variant_id}", verify=NO_CERTIFICATES
    ).raise_for_status()


def configure_registries(url: str, **settings: object) -> None:
    """Set any of `REGISTRY_LIMITS`; 0 means no limit."""
    httpx.put(f"{url}/_sim/registries", json=settings, verify=NO_CERTIFICATES).raise_for_status()


def registry_totals(url: str) -> Any:  # Any: JSON
    """Totals of the simulated registries: settings, bans, logins, and per source its calls and
    `peak_per_...`."""
    return httpx.get(f"{url}/_sim/registries", verify=NO_CERTIFICATES).raise_for_status().json()


def sirens(url: str, count: int, kind: str | None = None) -> list[str]:
    """SIRENs of companies of the kind (`unknown` included), or of any kind."""
    parameters = {"count": str(count), **({"kind": kind} if kind else {})}
    answer = httpx.get(f"{url}/_sim/registries/sirens", params=parameters, verify=NO_CERTIFICATES)
    return answer.raise_for_status().json()["sirens"]


def expire_inpi_tokens(url: str) -> None:
    httpx.delete(f"{url}/_sim/registries/tokens", verify=NO_CERTIFICATES).raise_for_status()


def _post(url: str, path: str, posted: Any) -> None:  # Any: JSON
    httpx.post(f"{url}/_sim/{path}", json=posted, verify=NO_CERTIFICATES).raise_for_status()
