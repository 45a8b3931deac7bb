"""What one look at the schedules and promotions of rules has come to, for sensors and people."""

from collections.abc import Sequence
from dataclasses import dataclass

MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class DueRules:
    """Runs that were `started`, and those of which the promotion has `ended`, newest first, to be rolled back. Rules
    whose promotion was `missed`, that are `put_off` because a run of theirs is not over, or that were run `before`
    for the same time."""

    started: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    put_off: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    def __str__(self) -> str:
        said = (
            ("Started {}.", "run", self.started),
            ("The promotion of {} is over: to be rolled back.", "run", self.ended),
            ("Not started, for the promotion is over already: {}.", "rule", self.missed),
            ("Put off until the run at work is over: {}.", "rule", self.put_off),
            ("Not started again for the same time: {}.", "rule", self.before),
        )
        return " ".join(words.format(_named(noun, ids)) for words, noun, ids in said if ids) or "No rule is due."


def _named(noun: str, ids: Sequence[int]) -> str:
    names = ", ".join(str(one) for one in ids[:MOST_NAMED])
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return f"{noun if len(ids) == 1 else noun + 's'} {names}{more}"
