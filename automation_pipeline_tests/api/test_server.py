"""The server gives its database the pace of its threads."""

import pytest
from sqlalchemy.pool import QueuePool

from automation_pipeline.api import server
from automation_pipeline.api.app import THREADS
from automation_pipeline.bootstrap import Services


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_each_thread_may_have_a_connection(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._Server, "run", lambda *_a, **_k: None)
    server.serve(services, host="127.0.0.1", port=0)
    pool = services.database.engine.pool
    assert isinstance(pool, QueuePool)
    assert pool.size() == THREADS
