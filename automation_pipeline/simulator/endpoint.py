"""The endpoint of a provider. `gate.py` counts its calls and applies faults."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """`name` is how faults and the ledger call it; `item` names what a call is about (a fiche, a
    day, a recording).

    `refuse` looks at the headers of a call as it arrives: what it answers, no fault touches.
    `take_in` reads the body where that is needed to name the item. `error` is what a simulated
    error answer has as `error_key`. `spoils` are the bad bodies that only this endpoint can have,
    `instead` those that it answers with in place of doing the work. `given` hears of each answer
    that was sent to the end, spoiled or not, while the caller was still there. `headers` are on
    every answer, of faults and refusals too.
    """

    name: str
    path: str
    handler: Callable[[Request], Awaitable[Response]]
    item: Callable[[Request], str]
    methods: tuple[str, ...] = ("GET",)
    speaks_json: bool = True
    refuse: Callable[[Request], Response | None] = lambda _: None
    take_in: Callable[[Request], Awaitable[None]] | None = None
    error: Callable[[int], object] = lambda status: f"Simulated answer {status}."
    error_key: str = "detail"
    spoils: Mapping[str, Callable[[bytes], bytes]] = field(
        default_factory=dict[str, Callable[[bytes], bytes]]
    )
    instead: Mapping[str, Callable[[Request], Awaitable[Response]]] = field(
        default_factory=dict[str, Callable[[Request], Awaitable[Response]]]
    )
    given: Callable[[Request, Response], None] = lambda _request, _response: None
    headers: Callable[[], Mapping[str, str]] = dict[str, str]
