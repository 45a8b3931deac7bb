"""The ledger of calls: routes, items, answers and concurrency."""

import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

MAX_ITEMS = 100_000
MAX_ARRIVALS = 200_000
NO_ANSWER = "none"


@dataclass(slots=True)
class Call:
    """One call. `item` and `number`, which counts the calls of this item on this route from 1, are set once the item is
    known. `status` stays None if the call gets no answer."""

    arrived_at: float
    _count_item: Callable[[str], int]
    item: str | None = None
    number: int = 0
    status: int | None = None

    def set_item(self, item: str) -> None:
        self.item, self.number = item, self._count_item(item)


@dataclass
class RouteLedger:
    calls: int = 0
    in_flight: int = 0
    in_flight_max: int = 0
    statuses: Counter[str] = field(default_factory=Counter[str])
    items: Counter[str] = field(default_factory=Counter[str])
    arrivals: deque[Call] = field(default_factory=lambda: deque[Call](maxlen=MAX_ARRIVALS))

    def arrive(self, at: float) -> Call:
        self.calls += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        call = Call(at, self._count)
        self.arrivals.append(call)
        return call

    def leave(self, call: Call) -> None:
        self.in_flight -= 1
        self.statuses[NO_ANSWER if call.status is None else str(call.status)] += 1

    def _count(self, item: str) -> int:
        if item in self.items or len(self.items) < MAX_ITEMS:
            self.items[item] += 1
        return self.items[item]

    def summary(self, item: str | None, *, times: bool) -> dict[str, object]:
        items = dict(self.items) if item is None else {item: self.items.get(item, 0)}
        summary: dict[str, object] = {
            "calls": self.calls,
            "statuses": dict(self.statuses),
            "in_flight": self.in_flight,
            "in_flight_max": self.in_flight_max,
            "items": items,
        }
        if times:
            summary["times"] = [
                round(call.arrived_at, 6) for call in self.arrivals if item in {None, call.item}
            ]
        return summary


class Ledger:
    """One ledger per route. It keeps the counts of the first MAX_ITEMS items and the last MAX_ARRIVALS arrivals of each
    route. Totals are always exact."""

    def __init__(self, routes: tuple[str, ...]) -> None:
        self.routes = {route: RouteLedger() for route in routes}
        self._started_at = time.monotonic()

    @contextmanager
    def call(self, route: str, item: str | None = None) -> Generator[Call]:
        """Count a call. If only the body of the call names its item, the caller sets the item later."""
        ledger = self.routes[route]
        call = ledger.arrive(time.monotonic() - self._started_at)
        if item is not None:
            call.set_item(item)
        try:
            yield call
        finally:
            ledger.leave(call)

    def clear(self) -> None:
        """Forget all calls. Calls in progress still end in the previous ledger, so that no count becomes
        negative."""
        self.routes = {route: RouteLedger() for route in self.routes}

    def summary(
        self, route: str | None = None, item: str | None = None, *, times: bool = False
    ) -> dict[str, object]:
        routes = [route] if route else list(self.routes)
        return {
            "total": sum(self.routes[name].calls for name in routes),
            "routes": {name: self.routes[name].summary(item, times=times) for name in routes},
        }
