"""What was published, in its order: what `/_sim/pusher` lists."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from automation_pipeline.simulator.pusher.messages import Message

MOST_KEPT = 200_000


class Published:
    """Remembers the last MOST_KEPT; the count is exact whatever the volume."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[tuple[int, Message]] = deque(maxlen=MOST_KEPT)

    def add(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.count += 1
            self._kept.append((self.count, message))

    def forget(self) -> None:
        self.count = 0
        self._kept.clear()

    def shown(
        self, channel: str | None, name: str | None, after: int, limit: int
    ) -> Sequence[Mapping[str, object]]:
        found = (
            {
                "number": number,
                "channels": list(message.channels),
                "name": message.name,
                "data": message.data,
            }
            for number, message in self._kept
            if number > after
            and channel in {None, *message.channels}
            and name in {None, message.name}
        )
        return list(islice(found, limit))
