"""Requests generated from the OpenAPI document: no server error, and no answer that the document
does not describe."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from automation_pipeline.simulator import Fiche
from automation_pipeline_tests.e2e.conftest import FIVE_STEPS, NewSystem
from automation_pipeline_tests.e2e.system import BIN, TOKEN, System, data

# The stream of a fiche's events does not end. Other tests cover both kinds of streams.
STREAMS = "/events$"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,unsupported_method,allow_header_conformance,ignored_auth"
)
HEARTBEAT = """
INSERT INTO pulses (name, beat_at) VALUES ('dagster-daemon', CURRENT_TIMESTAMP)
ON CONFLICT (name) DO UPDATE SET beat_at = CURRENT_TIMESTAMP
"""


@contextmanager
def simulated_daemon(system: System) -> Iterator[None]:
    """A real daemon would start the work that the generated requests file."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.is_set():
            system.sql(HEARTBEAT)
            ended.wait(5)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_every_answer_matches_the_openapi_document(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    """The examples in the document, and one generated request per endpoint."""
    system = new_system()
    with system.api() as api, simulated_daemon(system):
        data(api.post("/api/audit-configs/import", json=json.loads(FIVE_STEPS.read_text())))
        system.create_schedule([fiches[0].id])
        data(api.post("/api/organisations", json={"id": "acme", "name": "Acme"}))
        for what, fields in (
            ("hosts", {"name": "box"}),
            ("servers", {"name": "main", "hostId": "1"}),
        ):
            data(api.post(f"/api/org-{what}", params={"org": "acme"}, json=fields))
        address = f"{api.base_url}/openapi.json".replace("//openapi", "/openapi")
        api.get("/openapi.json").raise_for_status()
        ended = system.run(
            str(BIN / "schemathesis"), "run", address,
            "--header", f"Authorization:Bearer {TOKEN}",
            "--checks", CHECKS,
            "--exclude-path-regex", STREAMS,
            "--max-examples", "1",
            "--phases", "examples,fuzzing",
            "--seed", "20261118",
            "--continue-on-failure",
            "--request-timeout", "120",
            "--suppress-health-check", "all",
        )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
