"""The endpoint of a provider. `gate.py` counts its calls and applies faults."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An endpoint. Fault rules and the ledger refer to its `name`. `item` names the subject of a call: a fiche, a
    day, a recording.

    `refuse` checks the headers of a call when it arrives; its answers are not subject to faults.
    `read_body` reads the body if the item depends on it. `error` returns the value of the field
    `error_key` in simulated error answers. `corruptions` are the broken bodies that only this
    endpoint has, and `replacements` the answers that it gives without doing its work. `on_answered`
    is called with each answer that was sent completely to a connected caller, corrupted or not.
    `headers` are part of every answer, including those of faults and refusals.
    """

    name: str
    path: str
    handler: Callable[[Request], Awaitable[Response]]
    item: Callable[[Request], str]
    methods: tuple[str, ...] = ("GET",)
    answers_json: bool = True
    refuse: Callable[[Request], Response | None] = lambda _: None
    read_body: Callable[[Request], Awaitable[None]] | None = None
    error: Callable[[int], object] = lambda status: f"Simulated answer {status}."
    error_key: str = "detail"
    corruptions: Mapping[str, Callable[[bytes], bytes]] = field(
        default_factory=dict[str, Callable[[bytes], bytes]]
    )
    replacements: Mapping[str, Callable[[Request], Awaitable[Response]]] = field(
        default_factory=dict[str, Callable[[Request], Awaitable[Response]]]
    )
    on_answered: Callable[[Request, Response], None] = lambda _request, _response: None
    headers: Callable[[], Mapping[str, str]] = dict[str, str]
