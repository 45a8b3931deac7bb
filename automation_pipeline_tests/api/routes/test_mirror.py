"""The mirror route of a fiche."""

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.bootstrap import Services
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.archive import Archive


@pytest.fixture(autouse=True)
def _fiche(services: Services) -> None:
    Archive(services.database).put("900", calls=2, of_fiche_groupe="SUD")


def test_the_mirror_shows_a_fiche_with_its_calls(client: TestClient) -> None:
    document = client.get("/api/fiches/900/mirror").json()["data"]
    assert (
        document["fiche_id"],
        len(document["recordings"]),
        document["transcription"]["total"],
    ) == (
        "900",
        2,
        2,
    )


@pytest.mark.parametrize(("groupe", "status"), [("SUD", 200), ("NORD", 404)])
def test_the_mirror_of_a_fiche_out_of_scope_looks_missing(
    login: Login, groupe: str, status: int
) -> None:
    reader = login({"fiches.read": "GROUP"}, groupes=[groupe])
    hidden, missing = reader.get("/api/fiches/900/mirror"), reader.get("/api/fiches/987/mirror")
    assert (hidden.status_code, missing.status_code) == (status, 404)
    if status == 404:
        assert hidden.json()["error"].replace("900", "987") == missing.json()["error"]
