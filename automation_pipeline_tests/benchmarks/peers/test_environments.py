"""The virtual environment of a peer: its folder, its name, and the message when it cannot be installed."""

import re
import runpy
from pathlib import Path

import pytest

from automation_pipeline_tests.cases import every_case

ROOT = Path(__file__).parents[3]
PEERS = ROOT / "benchmarks" / "peers"
subject = runpy.run_path(str(PEERS / "environments.py"))
PIN = re.compile(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[0-9][A-Za-z0-9.+]*")

NO_INDEX = """WARNING: Retrying after connection broken by 'NewConnectionError: Name or service not known'
ERROR: Could not find a version that satisfies the requirement celery==5.7.0 (from versions: none)
ERROR: No matching distribution found for celery==5.7.0
"""
MISSING_VERSION = "ERROR: No matching distribution found for celery==99.0\n"
FAILED_BUILD = "Collecting celery\nERROR: Failed building wheel for gevent\n"


@every_case(
    ("environment", "home"),
    [
        ({"BENCH_PEERS_HOME": "/scratch/peers", "HOME": "/home/a"}, "/scratch/peers"),
        ({"XDG_CACHE_HOME": "/caches", "HOME": "/home/a"}, "/caches/automation-pipeline/peers"),
        ({"HOME": "/home/a"}, "/home/a/.cache/automation-pipeline/peers"),
    ],
)
def test_environments_are_in_the_cache_folder_of_the_user(
    environment: dict[str, str], home: str
) -> None:
    assert subject["home"](environment) == Path(home)


def test_an_environment_depends_on_its_pins() -> None:
    first = subject["folder"]("celery", "celery==5.7.0\n")
    assert first == subject["folder"]("celery", "celery==5.7.0\n")
    assert first != subject["folder"]("celery", "celery==5.6.0\n")
    assert first.startswith("celery-")


@every_case(
    ("output", "message"),
    [
        (
            NO_INDEX,
            "celery cannot be installed: the package index does not answer. Its benchmark needs the network once.",
        ),
        (
            MISSING_VERSION,
            (
                "celery cannot be installed: the package index lacks a pinned version. "
                "No matching distribution found for celery==99.0."
            ),
        ),
        (FAILED_BUILD, "celery cannot be installed: Failed building wheel for gevent."),
        ("", "celery cannot be installed: pip gave no reason."),
    ],
)
def test_a_failed_installation_is_reported_in_one_sentence(output: str, message: str) -> None:
    assert subject["complaint"]("celery", output) == message


def test_an_unknown_peer_is_refused_with_the_known_names() -> None:
    with pytest.raises(SystemExit, match=r"no peer named cron: there are celery, .*procrastinate"):
        subject["python_of"]("cron")


@every_case("name", subject["peers"]())
def test_a_peer_pins_all_requirements_and_has_a_competitor(name: str) -> None:
    lines = (PEERS / name / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in wanted if not PIN.fullmatch(line)] == []
    assert subject["competitor_of"](name).exists()


def test_a_ready_environment_is_found_again_without_installing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_PEERS_HOME", str(tmp_path))
    requirements = (PEERS / "celery" / "requirements.txt").read_text()
    folder = tmp_path / subject["folder"]("celery", requirements)
    folder.mkdir()
    (folder / "ready").touch()
    assert subject["python_of"]("celery") == folder / "bin" / "python"
    assert sorted(path.name for path in folder.iterdir()) == ["ready"]
