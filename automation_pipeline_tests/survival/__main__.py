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
from automation_pipeline_tests.survival.rounds import PATIENCE_SECONDS, Outcome, RoundRunner
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
    def options(self) -> str:
        """The options that repeat this campaign."""
        options = f"--seed {self.seed} --faults {self.faults} --profile {self.profile} --executor {self.executor}"
        return options + "".join(f" --only {kind}" for kind in self.only)

    def rounds(self) -> Sequence[Round]:
        kinds = self.only or kinds_of(self.profile, celery=self.executor == "celery")
        return [
            one for one in plan(self.seed, self.faults, kinds) if self.round in {None, one.number}
        ]


def main() -> int:
    options = parse()
    # A background job of a shell ignores SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
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
    folder.chmod(0o755)  # PostgreSQL does not run as root
    report(
        f"Seed {campaign.seed}, {campaign.profile} profile, executor {campaign.executor}, "
        f"{campaign.faults} faults; in {folder}"
    )
    outcomes: list[Outcome] = []
    with World(folder, campaign.profile, campaign.executor) as world:
        if world.disk:
            report(f"The fault disk-full uses {world.disk.description}.")
        runner = RoundRunner(world, report, campaign.patience)
        for round_ in campaign.rounds():
            outcomes.append(runner.run_round(round_))
            if outcomes[-1].violations:
                world.keep = True
                break
            report(f"run {outcomes[-1].run_id}: {outcomes[-1].status}, without a violation")
    for violation in outcomes[-1].violations:
        report(
            f"VIOLATION in round {outcomes[-1].round.number} of seed {campaign.seed}: {violation}"
        )
    if world.keep:
        report(f"Repeat it with: python -m automation_pipeline_tests.survival {campaign.options}")
        report(
            f"Repeat only this run with the same command and --round {outcomes[-1].round.number}"
        )
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
    """Divide the faults of the embedded profile between its two executors."""
    if executor or profile is Profile.PRODUCTION:
        return [(executor or "celery", faults)]
    return [("in_process", faults // 2), ("multiprocess", faults - faults // 2)]


def parse() -> argparse.Namespace:
    kinds = "\n".join(f"  {kind:14} {meaning}" for kind, meaning in MEANING.items())
    parser = argparse.ArgumentParser(
        prog="python -m automation_pipeline_tests.survival",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Starts a whole installation, requests runs, and injects the faults that a seed\n"
        "determines. Each run must end by itself within two minutes of the last repair. It must have one\n"
        "row per fiche and correct totals, leave no claim or request, send every event, and not repeat\n"
        "a provider call for finished work.",
        epilog=f"Faults:\n{kinds}\n\nThe same seed injects the same faults at the same points of the work.\n"
        "After a violation, the command keeps the folder of the installation, prints the command that\n"
        "repeats the faults, and exits with 1. Without --seed it uses the committed seeds (seeds.txt).",
    )
    parser.add_argument(
        "--seed", type=int, help="the seed of the faults; default: the committed seeds"
    )
    parser.add_argument(
        "--faults",
        type=at_least_one,
        help="the number of faults (default 100); without --seed, the first committed seed is used",
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
    parser.add_argument("--round", type=at_least_one, help="only the run with this number")
    parser.add_argument(
        "--patience",
        type=at_least_one,
        default=PATIENCE_SECONDS,
        metavar="SECONDS",
        help="how long a recovery may take (default 120; choose more on a busy machine)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
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
