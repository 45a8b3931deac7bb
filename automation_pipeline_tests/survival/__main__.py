"""`python -m automation_pipeline_tests.survival`: whole installations under seeded faults, and a
table of them."""

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
class Wish:
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
    ):  # a shell that starts this in the background has SIGINT ignored
        signal.signal(ending, signal.default_int_handler)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    for request in wishes(options):
        outcomes += survive(request)
        if any(outcome.violations for outcome in outcomes):
            break
    say(table(outcomes, time.monotonic() - began))
    if options.json:
        options.json.write_text(
            json.dumps(document(outcomes, time.monotonic() - began), indent=2) + "\n"
        )
    return int(any(outcome.violations for outcome in outcomes))


def survive(request: Wish) -> list[Outcome]:
    """The rounds of one wish in one world, up to the first violation."""
    room = Path(tempfile.mkdtemp(prefix="survival-"))
    room.chmod(0o755)  # PostgreSQL is another user where we are root
    say(
        f"Seed {request.seed}, {request.profile} profile, executor {request.executor}, "
        f"{request.faults} faults; in {room}"
    )
    outcomes: list[Outcome] = []
    with World(room, request.profile, request.executor) as world:
        if world.disk:
            say(f"A full disk is {world.disk.said}.")
        player = Player(world, say, request.patience)
        for round_ in request.rounds():
            outcomes.append(player.play(round_))
            if outcomes[-1].violations:
                world.keep = True
                break
            say(f"run {outcomes[-1].run_id}: {outcomes[-1].status}, and all is in order")
    for violation in outcomes[-1].violations:
        say(f"VIOLATION in round {outcomes[-1].round.number} of seed {request.seed}: {violation}")
    if world.keep:
        say(f"Again: python -m automation_pipeline_tests.survival {request.again}")
        say(f"That run alone: the same with --round {outcomes[-1].round.number}")
        say(f"Logs and database: {room}")
    return outcomes


def wishes(options: argparse.Namespace) -> list[Wish]:
    lines = [
        line.split()
        for line in SEEDS.read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    alike = {"only": options.only or (), "round": options.round, "patience": options.patience}
    if options.seed is None and options.faults is None:
        return [
            Wish(int(seed), Profile(profile), int(faults), executor, **alike)
            for seed, profile, executor, faults in lines
        ]
    seed = int(lines[0][0]) if options.seed is None else options.seed
    return [
        Wish(seed, options.profile, faults, executor, **alike)
        for executor, faults in shares(options.profile, options.faults or 100, options.executor)
    ]


def shares(profile: Profile, faults: int, executor: str | None) -> list[tuple[str, int]]:
    """The embedded profile is tried on both of its executors."""
    if executor or profile is Profile.PRODUCTION:
        return [(executor or "celery", faults)]
    return [("in_process", faults // 2), ("multiprocess", faults - faults // 2)]


def parse() -> argparse.Namespace:
    kinds = "\n".join(f"  {kind:14} {meaning}" for kind, meaning in MEANING.items())
    parser = argparse.ArgumentParser(
        prog="python -m automation_pipeline_tests.survival",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Starts a whole installation, asks it for runs, and does to them what a seed says. Each run must\n"
        "end by itself within two minutes of the last repair, with one row a fiche, totals that add up,\n"
        "nothing held or waiting, every event sent, and no call of a provider for work that was finished.",
        epilog=f"Faults:\n{kinds}\n\nThe same seed does the same to the same pieces of work. Exit 1 at a violation:\n"
        "the folder of its installation is kept, and the command that repeats it is said. Without --seed\n"
        "the committed seeds are played (seeds.txt).",
    )
    parser.add_argument(
        "--seed", type=int, help="what happens when; without it the committed seeds"
    )
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
        help="how long a recovery may take (default 120, the promise; more for a machine that has other work)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, for machines")
    return parser.parse_args()


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
