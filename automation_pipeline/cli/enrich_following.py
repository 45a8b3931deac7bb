"""Ask for many companies and follow them to their end, with a bar for a person to watch."""

import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from automation_pipeline.cli.desk.enrichment_ports import AskedCompany
from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.enrich_input import Wanted
from automation_pipeline.cli.following import POLL_SECONDS
from automation_pipeline.cli.output import screen
from automation_pipeline.cli.waiting import Waiting
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.store.followed import Standing

GOES_ON = "The enrichment goes on without us: the same command without --force tells what is known.\n"
NEEDS_US = "What is left goes on with the next --here, or as soon as Dagster's daemon runs (`dagster dev` starts it).\n"
_GOOD = frozenset({EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL})


@dataclass(frozen=True, kw_only=True)
class Enriched:
    """What became of one that was given. `asked` None: it was only checked, or could not be asked for."""

    wanted: Wanted
    asked: AskedCompany | None = None
    standing: Standing | None = None
    fault: str | None = None

    @property
    def is_good(self) -> bool:
        return self.standing is not None and not self.standing.is_running and self.standing.status in _GOOD


def ask_for(wanted: Sequence[Wanted], desk: Desk, *, force: bool, quiet: bool) -> Sequence[Enriched]:
    """One that is refused is no reason not to ask for the others."""
    with _bar(quiet=quiet or not screen.is_terminal) as progress:
        bar = progress.add_task("asking", total=len(wanted))
        told: list[Enriched] = []
        with ThreadPoolExecutor(desk.companies.width) as threads:
            for one in threads.map(partial(_asked, desk=desk, force=force), wanted):
                told.append(one)
                progress.advance(bar)
    return told


def follow(
    asked: Sequence[Enriched],
    desk: Desk,
    *,
    pause: threading.Event,
    quiet: bool,
    timeout: float | None = None,
    here: bool = False,
) -> Sequence[Enriched]:
    """Until no job of theirs is open. With `here` the jobs are done by this command, also one whose worker was lost, as
    soon as its lease has ended."""
    goes_on = NEEDS_US if here else GOES_ON
    try:
        with _bar(quiet=quiet) as progress:
            bar = progress.add_task("companies", total=len(_ids(asked)))
            known = sum(one.asked.job_id is None for one in asked if one.asked)
            waits = Waiting(desk, timeout=timeout)
            while True:
                asked = look(asked, desk)
                progress.update(bar, completed=_over(asked))
                if here:
                    desk.companies.work(_open_jobs(asked), lambda: progress.advance(bar))
                    asked = look(asked, desk)
                over = _over(asked)
                progress.update(bar, completed=over)
                if over == len(_ids(asked)):
                    return asked
                waits.look(begun=here or over > known)
                pause.wait(POLL_SECONDS)
    except KeyboardInterrupt:
        sys.stderr.write(goes_on)
        raise


def look(asked: Sequence[Enriched], desk: Desk) -> Sequence[Enriched]:
    """How they stand now. Those that are over are not looked at again."""
    open_ids = [one.asked.request_id for one in asked if one.asked and (not one.standing or one.standing.is_running)]
    found: Mapping[int, Standing] = {one.request_id: one for one in desk.companies.followed(open_ids)}
    return [
        Enriched(wanted=one.wanted, asked=one.asked, standing=found.get(_id(one), one.standing), fault=one.fault)
        for one in asked
    ]


def _asked(one: Wanted, desk: Desk, *, force: bool) -> Enriched:
    if one.fault is not None:
        return Enriched(wanted=one, fault=one.fault)
    try:
        return Enriched(wanted=one, asked=desk.companies.request(one.body, force=force))
    except (InvalidInputError, ConflictError) as error:
        return Enriched(wanted=one, fault=sentence_of(error))


def _over(asked: Sequence[Enriched]) -> int:
    return sum(not (one.standing and one.standing.is_running) for one in asked if one.asked)


def _open_jobs(asked: Sequence[Enriched]) -> list[int]:
    """Each once: several requests may wait for one."""
    found = (one.standing.open_job_id for one in asked if one.standing and one.standing.is_running)
    return list(dict.fromkeys(job_id for job_id in found if job_id is not None))


def _ids(asked: Sequence[Enriched]) -> list[int]:
    return [one.asked.request_id for one in asked if one.asked]


def _id(one: Enriched) -> int:
    return one.asked.request_id if one.asked else 0


@contextmanager
def _bar(*, quiet: bool) -> Generator[Progress]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=screen, disable=quiet, transient=screen.is_terminal) as progress:
        yield progress
