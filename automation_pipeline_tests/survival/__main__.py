"""`python -m automation_pipeline_tests.survival`: injects seeded faults into whole installations, and
prints a table of them."""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from automation_pipeline_tests.survival.plan import MEANING, Kind, Profile, Round, kinds_of, plan
from automation_pipeline_tests.survival.rounds import PATIENCE_SECONDS, Outcome, Player
from automation_pipeline_tests.survival.table import document, table
from automation_pipeline_tests.survival.world import World

SEEDS = Path(__file__).with_name("seeds.txt")


@dataclass(frozen=True)
class Campaign:
    seed: int
    profile: Profile
    faults: int
    executor: str
    only: Sequence[Kind] = ()
    round: int | None = None
    patience: float = PATIENCE_SECONDS

    @property
    def again(self) -> str:
        words = f"--seed {self.seed} --faults {self.faults} --profile {self.profile} --executor {self.executor}"
        return words + "".join(f" --only {kind}" for kind in self.only)

    def rounds(self) -> Sequence[Round]:
        kinds = self.only or kinds_of(self.profile, celery=self.executor == "celery")
        return [
            one for one in plan(self.seed, self.faults, kinds) if self.round in {None, one.number}
        ]


def main() -> int:
    options = parse()
    for ending in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a background job of a shell ignores SIGINT
        signal.signal(ending, signal.default_int_handler)
    outcomes: list[Outcome] = []
    started_at = time.monotonic()
    for campaign in campaigns(options):
        outcomes += survive(campaign)
        if any(outcome.violations for outcome in outcomes):
            break
    report(table(outcomes, time.monotonic() - started_at))
    if options.json:
        options.json.write_text(
            json.dumps(document(outcomes, time.monotonic() - started_at), indent=2) + "\n"
        )
    return int(any(outcome.violations for outcome in outcomes))


def survive(campaign: Campaign) -> list[Outcome]:
    """The rounds of one campaign, up to the first violation."""
    folder = Path(tempfile.mkdtemp(prefix="survival-"))
    folder.chmod(0o755)  # PostgreSQL is another user where we are root
    report(
        f"Seed {campaign.seed}, {campaign.profile} profile, executor {campaign.executor}, "
        f"{campaign.faults} faults; in {folder}"
    )
    outcomes: list[Outcome] = []
    with World(folder, campaign.profile, campaign.executor) as world:
        if world.disk:
            report(f"A full disk is {world.disk.description}.")
        player = Player(world, report, campaign.patience)
        for round_ in campaign.rounds():
            outcomes.append(player.play(round_))
            if outcomes[-1].violations:
                world.keep = True
                break
            report(f"run {outcomes[-1].run_id}: {outcomes[-1].status}, and all is in order")
    for violation in outcomes[-1].violations:
        report(
            f"VIOLATION in round {outcomes[-1].round.number} of seed {campaign.seed}: {violation}"
        )
    if world.keep:
        report(f"Again: python -m automation_pipeline_tests.survival {campaign.again}")
        report(f"That run alone: the same with --round {outcomes[-1].round.number}")
        report(f"Logs and database: {folder}")
    return outcomes


def campaigns(options: argparse.Namespace) -> list[Campaign]:
    lines = [
        line.split()
        for line in SEEDS.read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    common = {"only": options.only or (), "round": options.round, "patience": options.patience}
    if options.seed is None and options.faults is None:
        return [
            Campaign(int(seed), Profile(profile), int(faults), executor, **common)
            for seed, profile, executor, faults in lines
        ]
    seed = int(lines[0][0]) if options.seed is None else options.seed
    return [
        Campaign(seed, options.profile, faults, executor, **common)
        for executor, faults in shares(options.profile, options.faults or 100, options.executor)
    ]


def shares(profile: Profile, faults: int, executor: str | None) -> list[tuple[str, int]]:
    """The embedded profile is tested on both of its executors."""
    if executor or profile is Profile.PRODUCTION:
        return [(executor or "celery", faults)]
    return [("in_process", faults // 2), ("multiprocess", faults - faults // 2)]


def parse() -> argparse.Namespace:
    kinds = "\n".join(f"  {kind:14} {meaning}" for kind, meaning in MEANING.items())
    parser = argparse.ArgumentParser(
        prog="python -m automation_pipeline_tests.survival",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Starts a whole installation, requests runs, and injects the faults that a seed\n"
        "draws. Each run must end by itself within two minutes of the last repair, with one row per\n"
        "fiche, totals that add up, nothing held or waiting, every event sent, and no provider call for\n"
        "work that was finished.",
        epilog=f"Faults:\n{kinds}\n\nThe same seed injects the same faults at the same pieces of work.\n"
        "Exit 1 at a violation: the folder of its installation is kept, and the command that repeats it\n"
        "is printed. Without --seed the committed seeds are used (seeds.txt).",
    )
    parser.add_argument("--seed", type=int, help="draws the faults; default: the committed seeds")
    parser.add_argument(
        "--faults",
        type=at_least_one,
        help="how many (default 100); without a seed, with that of the first line",
    )
    parser.add_argument(
        "--profile",
        type=Profile,
        choices=list(Profile),
        default=Profile.EMBEDDED,
        help="embedded: SQLite alone; production: PostgreSQL, Redis, a code server of its own",
    )
    executors = ("in_process", "multiprocess", "celery")
    parser.add_argument(
        "--executor",
        choices=executors,
        help="in_process, multiprocess or celery instead of the profile's own",
    )
    parser.add_argument(
        "--only",
        type=Kind,
        choices=list(Kind),
        action="append",
        metavar="KIND",
        help="may be repeated",
    )
    parser.add_argument("--round", type=at_least_one, help="only this one of the plan's runs")
    parser.add_argument(
        "--patience",
        type=at_least_one,
        default=PATIENCE_SECONDS,
        metavar="SECONDS",
        help="how long a recovery may take (default 120; choose more on a busy machine)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, for machines")
    return parser.parse_args()


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def report(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
