"""Runs the API on a real socket in a thread of the test."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from automation_pipeline.api.app import BoundedProtocol
from automation_pipeline_tests.waiting import wait_until


@contextmanager
def served(api: FastAPI) -> Generator[str]:
    """Yields the URL. Leaving the block stops the server and ends its streams."""
    server = uvicorn.Server(
        uvicorn.Config(
            api, http=BoundedProtocol, port=0, log_config=None, timeout_graceful_shutdown=20
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, 30)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        api.state.stopping.set()
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
