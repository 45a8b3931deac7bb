"""A short `make survive`: a whole installation with a few faults. Its run ends by itself with one
row per fiche, nothing is left behind, and finished work is not repeated."""

from pathlib import Path

from automation_pipeline_tests.e2e.system import TIMEOUT_SECONDS
from automation_pipeline_tests.survival.plan import Fault, Kind, Profile, Round
from automation_pipeline_tests.survival.rounds import RoundRunner
from automation_pipeline_tests.survival.world import World

# The last fault is injected when most of the work is done, so the run ends soon after it.
FAULTS = [
    Fault(Kind.RUN_WORKER, at=3, seconds=0, chance=0),
    Fault(Kind.API, at=14, seconds=0.5, chance=0),
    Fault(Kind.DISK_FULL, at=26, seconds=2, chance=0),
]


def test_a_run_survives_a_killed_worker_a_killed_api_and_a_full_disk(tmp_path: Path) -> None:
    log: list[str] = []
    with World(tmp_path, Profile.EMBEDDED, "in_process") as world:
        outcome = RoundRunner(world, log.append, TIMEOUT_SECONDS).run_round(Round(1, FAULTS))
    assert outcome.violations == [], log
    assert [one.kind for one in outcome.injected] == [fault.kind for fault in FAULTS]
