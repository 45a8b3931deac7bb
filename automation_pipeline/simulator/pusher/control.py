"""`/_sim/pusher`: lists the published events in order, and deletes them."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automation_pipeline.simulator.faults import BadRequestError
from automation_pipeline.simulator.pusher.channels_api import MOST_KEPT, Published

SHOWN = 1000


class PusherControl:
    def __init__(self, published: Published) -> None:
        self._published = published

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/pusher", self.show, methods=["GET"]),
            Route("/_sim/pusher", self.delete, methods=["DELETE"]),
        ]

    async def show(self, request: Request) -> Response:
        """The events, optionally of one channel or name. `after` is the number of the last event of
        the previous page."""
        query = request.query_params
        after, limit = _whole(query.get("after", "0")), _whole(query.get("limit", str(SHOWN)))
        found = self._published.find(
            query.get("channel"), query.get("name"), after, min(limit, MOST_KEPT)
        )
        return JSONResponse({"published": self._published.count, "events": found})

    async def delete(self, _request: Request) -> Response:
        self._published.reset()
        return JSONResponse({"published": 0})


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise BadRequestError("'after' and 'limit' must be whole numbers.")
    return int(text)
