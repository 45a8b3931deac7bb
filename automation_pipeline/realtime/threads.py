"""A call that waits on the network, in a thread that nobody has to wait for: a server that trickles is left to it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(call: Callable[[], Result], seconds: float) -> Result:
    """TimeoutError: it has not ended by then, and may still do its work."""
    ended: Future[Result] = Future()
    Thread(target=_carry_out, args=(call, ended), daemon=True).start()
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(ended)


def _carry_out(call: Callable[[], Result], ended: Future[Result]) -> None:
    if not ended.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
        ended.set_exception(error)
    else:
        ended.set_result(result)
