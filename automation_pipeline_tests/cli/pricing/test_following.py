"""Following a run: Ctrl-C leaves it at work, the command says why a run does not begin, the bar
counts targets."""

from datetime import timedelta

import pytest

from automation_pipeline.cli.progress import LaunchWait
from automation_pipeline.core.clock import iso
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.pricing.commands import runs
from automation_pipeline.pricing.commands.runs import follow_run, is_over, run_bar
from automation_pipeline.pricing.models.runs import (
    PricingRunState,
    RuleRun,
    RunAction,
    TargetCounts,
)
from automation_pipeline.pricing.models.shop import ShopShown
from automation_pipeline_tests.cli.pricing.workshop import Workshop
from automation_pipeline_tests.cli.terminal import meanwhile, time_passes
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.tables import every_case

GOES_ON = "Run 1 continues. `automation pricing runs show 1` shows its status.\n"


def a_run(clock: StandingClock, **fields: object) -> RuleRun:
    nothing = dict.fromkeys(
        name for name, field in RuleRun.model_fields.items() if field.is_required()
    )
    known: dict[str, object] = {
        "id": 1, "project_id": "default", "rule_id": 1, "rule_name": "Summer", "rule_version": 1,
        "rule_version_hash": "x", "shop": "shop.test",
        "status": PricingRunState.QUEUED, "trigger": "cli", "retry_cycle": 0,
        "created_by": "cli:ada", "rollback_state": "NONE", "matched": 10, "total_targets": 10, "skipped": 0,
        "blocked": 0, "targets": TargetCounts(queued=10), "created_at": clock.now(), "updated_at": clock.now(),
        "previewed_at": clock.now(),
    }  # fmt: skip
    return RuleRun.model_validate(nothing | known | fields)


def why(
    monkeypatch: pytest.MonkeyPatch, clock: StandingClock, run: RuleRun, *, paused: bool = False
) -> str | None:
    """The code by which the command stops to follow the run within a minute; None if it goes on."""
    shop = ShopShown(shop="shop.test", paused_at=clock.now() if paused else None)
    no_daemon = NotStartedError("NO_DAEMON", "")
    with monkeypatch.context() as patch:
        patch.setattr(runs, "rule_run", lambda _run_id: run)
        patch.setattr(runs, "get_shop", lambda: shop)
        patch.setattr(LaunchWait, "_local_obstacle", lambda _wait, _waited: no_daemon)
        time_passes(patch, clock, 120)
        try:
            follow_run(1, quiet=True)
        except NotStartedError as error:
            return error.code
        except KeyboardInterrupt:
            return None
    return "ended"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_says_that_the_run_goes_on(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    run_id = workshop.previewed()
    meanwhile(monkeypatch)
    ended = workshop.run("runs", "apply", run_id, "--wait", *flags)
    assert (ended.code, ended.err) == (130, GOES_ON)
    assert workshop.json("runs", "show", run_id)["status"] == "QUEUED"


@pytest.mark.usefixtures("workshop")
def test_the_command_says_why_a_run_does_not_begin(
    clock: StandingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why(monkeypatch, clock, a_run(clock)) == "NO_DAEMON"
    assert why(monkeypatch, clock, a_run(clock), paused=True) == "SHOP_PAUSED"
    assert why(monkeypatch, clock, a_run(clock, status=PricingRunState.APPLYING)) is None
    later = clock.now() + timedelta(hours=1)
    assert why(monkeypatch, clock, a_run(clock, resume_at=iso(later))) is None, "it has a time"


@pytest.mark.parametrize(
    ("fields", "bar"),
    [
        (
            {"status": "PREVIEW", "previewed_at": None, "wish": RunAction.APPLY},
            ("reading the catalogue", 0, None),
        ),
        ({"status": "QUEUED"}, ("queued: 0 applied, 0 failed", 0, 10)),
        (
            {"status": "APPLYING", "targets": TargetCounts(applied=6, failed=1, queued=3)},
            ("applying: 6 applied, 1 failed", 7, 10),
        ),
        (
            {
                "status": "APPLIED",
                "wish": RunAction.ROLLBACK,
                "targets": TargetCounts(applied=4, rolled_back=6),
            },
            ("taking back: 4 applied", 6, 10),
        ),
        (
            {"status": "PARTIAL", "targets": TargetCounts(applied=9, failed=1)},
            ("partial: 9 applied, 1 failed", 10, 10),
        ),
    ],
)
def test_the_bar_counts_what_is_done_with(
    clock: StandingClock, fields: dict[str, object], bar: tuple[str, int, int | None]
) -> None:
    assert run_bar(a_run(clock, **fields)) == bar


@every_case("wish", [None, *RunAction])
@every_case("status", list(PricingRunState))
def test_a_run_is_over_when_nobody_is_at_it_and_nobody_asked(
    clock: StandingClock, status: PricingRunState, wish: RunAction | None
) -> None:
    at_work = wish is not None or status in {PricingRunState.QUEUED, PricingRunState.APPLYING}
    assert is_over(a_run(clock, status=status, wish=wish)) is not at_work
