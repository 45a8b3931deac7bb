"""Companies by another machine's API: the same output and exit code as here, and the work is done
there."""

import pytest

from automation_pipeline_tests.cli.register import DANONE, LVMH, NOBODY, a_register
from automation_pipeline_tests.cli.remote.served import Far
from automation_pipeline_tests.cli.terminal import Terminal
from automation_pipeline_tests.fakes.registries import FakeRegistry


@pytest.fixture
def search(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    assert terminal.folder
    return a_register(monkeypatch)


def test_companies_are_enriched_on_the_remote_machine(far: Far, search: FakeRegistry) -> None:
    document = far.json("enrich", DANONE, LVMH, NOBODY, "--wait", code=1)["companies"]
    assert [one["status"] for one in document] == ["SUCCESS", "SUCCESS", "FAILED"]
    here = far.here.json("enrich", DANONE, LVMH, NOBODY, "--wait", code=1)["companies"]
    assert [one["company"] for one in here] == [one["company"] for one in document]
    assert len(search.calls) == 3


def test_force_refreshes_a_company_once(far: Far, search: FakeRegistry) -> None:
    assert [far.json("enrich", DANONE, "--force")["companies"][0]["outcome"] for _ in range(2)] == [
        "ENQUEUED"
    ] * 2
    assert [one["status"] for one in far.json("enrich", DANONE, "--force")["companies"]] == [
        "SUCCESS"
    ]
    assert search.calls


def test_an_invalid_number_has_the_same_error_locally_and_remotely(
    far: Far, search: FakeRegistry
) -> None:
    output = [at.run("enrich", "12").err for at in (far, far.here)]
    assert output[0] == output[1] != ""
    assert search.calls == []
