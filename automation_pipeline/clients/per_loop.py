"""One of a thing for each event loop: connections and locks belong to the loop in which they were first used."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Thing = TypeVar("Thing")


class PerLoop(Generic[Thing]):
    def __init__(self, make: Callable[[], Thing]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, Thing] = WeakKeyDictionary()

    def here(self) -> Thing:
        """That of the running loop, made when it is first asked for."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]

    def taken(self) -> Thing | None:
        """That of the running loop, which has none from now on."""
        return self._made.pop(asyncio.get_running_loop(), None)
