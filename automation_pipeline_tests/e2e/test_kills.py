"""`make survive` in short: whole installations under a few faults of several kinds. Each run ends by itself, with one
row a fiche and nothing left behind, and finished work is not asked for again."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from automation_pipeline_tests.e2e.system import PATIENCE
from automation_pipeline_tests.survival.plan import Fault, Kind, Profile, Round
from automation_pipeline_tests.survival.rounds import Player
from automation_pipeline_tests.survival.world import World

# The last of each ends most of the work that is left: the run is over soon.
EMBEDDED = [
    Fault(Kind.RUN_WORKER, at=3, seconds=0, chance=0),
    Fault(Kind.API, at=14, seconds=0.5, chance=0),
    Fault(Kind.DISK_FULL, at=26, seconds=2, chance=0),
]
PRODUCTION = [
    Fault(Kind.CELERY_CHILD, at=3, seconds=0, chance=0),
    Fault(Kind.DATABASE, at=14, seconds=1, chance=0),
    Fault(Kind.REDIS, at=26, seconds=1, chance=0),
]


@pytest.mark.parametrize(
    ("profile", "executor", "faults"),
    [(Profile.EMBEDDED, "in_process", EMBEDDED), (Profile.PRODUCTION, "celery", PRODUCTION)],
)
@pytest.mark.services
def test_a_run_survives_what_is_done_to_its_installation(
    profile: Profile, executor: str, faults: Sequence[Fault], tmp_path: Path
) -> None:
    said: list[str] = []
    with World(tmp_path, profile, executor) as world:
        outcome = Player(world, said.append, PATIENCE).play(Round(1, faults))
    assert outcome.violations == [], said
    assert [one.kind for one in outcome.suffered] == [fault.kind for fault in faults]
