"""The outside world as a process of its own: the simulator, started for as long as a test needs
it."""

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
_SAYS = "simulator listening on "
# Loopback speaks plain HTTP: the certificates that httpx would load for every call are not wanted.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextmanager
def simulator(*options: str) -> Iterator[str]:
    """The address of a running simulator, which ends with the block."""
    with subprocess.Popen([*_COMMAND, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            assert line.startswith(_SAYS), f"The simulator did not start: {line!r}"
            yield line.removeprefix(_SAYS).strip()
        finally:
            process.terminate()


def forget(url: str) -> None:
    """No calls in the ledger, no faults, no latency."""
    _post(url, "reset", {})
    _post(url, "latency", {"seconds": 0})


def fault(url: str, *rules: Mapping[str, object]) -> None:
    _post(url, "faults", list(rules))


def clear_faults(url: str) -> None:
    httpx.delete(f"{url}/_sim/faults", verify=NO_CERTIFICATES).raise_for_status()


def calls(url: str, item: str, route: str = "crm.details") -> int:
    """How often the route was called about the item."""
    answer = httpx.get(
        f"{url}/_sim/calls", params={"route": route, "item": item}, verify=NO_CERTIFICATES
    ).raise_for_status()
    return answer.json()["routes"][route]["items"][item]


def set_up_model(url: str, **settings: float) -> None:
    """`inventions` (a share), `context_characters`, `per_minute` (0 is no cap): those given, the
    others stay."""
    httpx.put(f"{url}/_sim/llm", json=settings, verify=NO_CERTIFICATES).raise_for_status()


def model_totals(url: str) -> Any:  # Any: whatever JSON holds
    """Of the simulated language model: `calls`, and of what it `answered` the tokens and the
    finished `items`."""
    return httpx.get(f"{url}/_sim/llm", verify=NO_CERTIFICATES).raise_for_status().json()


def shown_to_browsers(url: str, **wanted: str) -> Any:  # Any: whatever JSON holds
    """What was published through the simulated Pusher, in its order: `channels`, `name` and `data`
    of each."""
    limit = {"limit": "200000", **wanted}
    return (
        httpx.get(f"{url}/_sim/pusher", params=limit, verify=NO_CERTIFICATES)
        .raise_for_status()
        .json()["events"]
    )


def set_up_shop(url: str, **settings: object) -> None:
    """`products`, `variants_per_product`, `currency`, `maximum`, `restore_rate`: those given, the
    others stay."""
    httpx.put(f"{url}/_sim/shop", json=settings, verify=NO_CERTIFICATES).raise_for_status()


def shop_totals(url: str, **wanted: str) -> Any:  # Any: whatever JSON holds
    """Of the simulated shop: its settings, the `level` of its bucket, `calls`, `throttled`,
    `writes` by variant; of one `variant` its `history`."""
    return (
        httpx.get(f"{url}/_sim/shop", params=wanted, verify=NO_CERTIFICATES)
        .raise_for_status()
        .json()
    )


def edit_in_shop(url: str, variant_id: str, price: str, **compare_at: str | None) -> None:
    """As somebody does it by hand; `compareAtPrice` only where it is given."""
    _post(url, "shop/variants", {"id": variant_id, "price": price, **compare_at})


def remove_from_shop(url: str, variant_id: str) -> None:
    httpx.delete(
        f"{url}/_sim/shop/variants/{variant_id}", verify=NO_CERTIFICATES
    ).raise_for_status()


def set_up_registries(url: str, **settings: object) -> None:
    """Limits of the registries (0 is none), seconds of bans and tokens: those given, the others
    stay."""
    httpx.put(f"{url}/_sim/registries", json=settings, verify=NO_CERTIFICATES).raise_for_status()


def registries_totals(url: str) -> Any:  # Any: whatever JSON holds
    """Of the simulated registries: settings, bans, logins, and of each of the `sources` calls and
    `peak_per_...`."""
    return httpx.get(f"{url}/_sim/registries", verify=NO_CERTIFICATES).raise_for_status().json()


def sirens(url: str, count: int, kind: str | None = None) -> list[str]:
    """Companies of that kind, or of any; `unknown` is a kind too."""
    wanted = {"count": str(count), **({"kind": kind} if kind else {})}
    answer = httpx.get(f"{url}/_sim/registries/sirens", params=wanted, verify=NO_CERTIFICATES)
    return answer.raise_for_status().json()["sirens"]


def expire_inpi_tokens(url: str) -> None:
    httpx.delete(f"{url}/_sim/registries/tokens", verify=NO_CERTIFICATES).raise_for_status()


def _post(url: str, what: str, posted: Any) -> None:  # Any: whatever JSON holds
    httpx.post(f"{url}/_sim/{what}", json=posted, verify=NO_CERTIFICATES).raise_for_status()
