"""The command `automation enrich` through the API of a remote machine."""

import pytest

from automation_pipeline_tests.cli.registry import DANONE, LVMH, UNKNOWN_COMPANY, fake_registry
from automation_pipeline_tests.cli.remote.served import RemoteTerminal
from automation_pipeline_tests.cli.terminal import Terminal
from automation_pipeline_tests.fakes.registries import FakeRegistry


@pytest.fixture
def search(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    assert terminal.folder
    return fake_registry(monkeypatch)


def test_companies_are_enriched_on_the_remote_machine(
    remote: RemoteTerminal, search: FakeRegistry
) -> None:
    remotely = remote.json("enrich", DANONE, LVMH, UNKNOWN_COMPANY, "--wait", code=1)["companies"]
    assert [one["status"] for one in remotely] == ["SUCCESS", "SUCCESS", "FAILED"]
    locally = remote.local.json("enrich", DANONE, LVMH, UNKNOWN_COMPANY, "--wait", code=1)[
        "companies"
    ]
    assert [one["company"] for one in locally] == [one["company"] for one in remotely]
    assert len(search.calls) == 3


def test_force_refreshes_a_company_once(remote: RemoteTerminal, search: FakeRegistry) -> None:
    assert [
        remote.json("enrich", DANONE, "--force")["companies"][0]["outcome"] for _ in range(2)
    ] == ["ENQUEUED"] * 2
    assert [one["status"] for one in remote.json("enrich", DANONE, "--force")["companies"]] == [
        "SUCCESS"
    ]
    assert search.calls


def test_an_invalid_number_has_the_same_error_locally_and_remotely(
    remote: RemoteTerminal, search: FakeRegistry
) -> None:
    output = [at.run("enrich", "12").err for at in (remote, remote.local)]
    assert output[0] == output[1] != ""
    assert search.calls == []
