"""The HTTP API attacked with what its own document allows: no bug, no answer that the document does not know."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from automation_pipeline.org_jobs.tables import BatchRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.pulses import DAEMON, beat_pulse
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.e2e.system import BIN, PATIENCE, REPOSITORY, System
from automation_pipeline_tests.e2e.web import TOKEN, api_server
from automation_pipeline_tests.org_jobs.bench import Bench
from automation_pipeline_tests.outside import LLM_KEY, SHOP_TOKEN, simulator

# A stream of a fiche's events has no end; both kinds of streams are tested by hearing them.
STREAMS = "/events$"
CASES_AN_OPERATION = 6
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,unsupported_method,allow_header_conformance,ignored_auth"
)


@pytest.fixture
def system(tmp_path: Path, database_url: str) -> Iterator[System]:
    with simulator("--fiches-per-day", "4") as url:
        account = {
            "PUSHER_APP_ID": "4010",
            "PUSHER_KEY": "sim-pusher-key",
            "PUSHER_SECRET": "sim-pusher-secret",
            "PUSHER_CLUSTER": "eu",
            "PUSHER_BASE_URL": url,
        }
        speech = {"ELEVENLABS_BASE_URL": url, "ELEVENLABS_API_KEY": "sim-speech-key"}
        model = {"LLM_BASE_URL": f"{url}/v1", "LLM_API_KEY": LLM_KEY}
        shop = {"SHOP_API_BASE_URL": url, "SHOP_API_TOKEN": SHOP_TOKEN}
        register = {"RECHERCHE_ENTREPRISES_BASE_URL": f"{url}/registries/search"}
        yield System(tmp_path, database_url, url, **account, **speech, **model, **shop, **register)


@contextmanager
def as_if_a_daemon_ticked(database: Database) -> Iterator[None]:
    """The real one would begin to work on whatever the attack asks for."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.is_set():
            with database.transaction() as session:
                beat_pulse(session, DAEMON)
            ended.wait(5)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def what_the_examples_name(database: Database) -> None:
    """An organisation, and one of everything that it can have."""
    orgs = Bench(database, StandingClock(datetime.now(UTC)))
    server_id = orgs.server(id=12, host_id=orgs.host(id=12))
    schedule_id = orgs.schedule(id="6f1c2f7e-4a38-4c0b-9d53-0a4f6d3f8b21", server_instance_id=server_id)
    of_period = {"from_at": orgs.now, "until_at": orgs.now, "created_at": orgs.now, "behaviour": "none", "total": 1}
    batch = BatchRow(id=12, org_id="acme", schedule_id=schedule_id, type="backfill", created_by="user:1", **of_period)
    batch.status = "running"
    with database.transaction() as session:
        session.add(batch)
    fire_id = orgs.fire(schedule_id)
    for of_job in [{}] * 11 + [{"schedule_id": schedule_id, "fire_id": fire_id, "batch_id": 12}]:
        orgs.job(server_instance_id=server_id, **of_job)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_every_answer_is_one_that_the_document_promises(system: System, database: Database) -> None:
    system.automation("audit-configs", "import", str(REPOSITORY / "demo" / "audit_config.json"))
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    system.automation("fiches", "sync", "--date", yesterday.isoformat(), "--details")
    system.create_schedule(["1900417"])
    what_the_examples_name(database)
    with as_if_a_daemon_ticked(database), api_server(system) as url:
        # Who asks first waits for it to be written: on a slow machine longer than schemathesis would.
        httpx.get(f"{url}/openapi.json", timeout=PATIENCE).raise_for_status()
        command = [
            str(BIN / "schemathesis"), "run", f"{url}/openapi.json",
            "--header", f"Authorization:Bearer {TOKEN}",
            "--checks", CHECKS,
            "--exclude-path-regex", STREAMS,
            "--max-examples", str(CASES_AN_OPERATION),
            "--phases", "examples,coverage,fuzzing",
            "--seed", "20261118",
            "--continue-on-failure",
            # The diagnostic asks everybody outside, and a machine may be slow.
            "--request-timeout", "120",
            # How hard it was to make values up is no matter of ours.
            "--suppress-health-check", "all",
        ]  # fmt: skip
        ended = subprocess.run(command, cwd=system.room, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
