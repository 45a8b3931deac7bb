"""What one look for due schedules has come to, for people and sensors."""

from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.automation.domain.due import NotRun

MOST_NAMED = 10


@dataclass(frozen=True)
class Started:
    schedule_id: int
    name: str
    due_at: datetime
    run_id: int


@dataclass(frozen=True)
class DueReport:
    """`checked`: the active schedules that have times. The others go by schedule id; `broken` cannot be read."""

    checked: int
    triggered: tuple[Started, ...] = ()
    not_run: tuple[tuple[int, NotRun], ...] = ()
    reconciled: tuple[int, ...] = ()
    broken: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        done = [
            *(f"Ended what was stale of schedule {id_}" for id_ in self.reconciled),
            *(
                f"Started schedule {one.schedule_id}, due {_at(one.due_at)}, as run {one.run_id}"
                for one in self.triggered
            ),
            *(f"Schedule {id_}, due {_at(one.due_at)}, is not run: {one.because}" for id_, one in self.not_run),
            *(f"Schedule {id_} cannot be read: {reason}" for id_, reason in self.broken),
        ]
        if not done:
            return f"{self.checked} schedules checked, none is due."
        more = [f"and {len(done) - MOST_NAMED} more"] if len(done) > MOST_NAMED else []
        return "; ".join([f"{self.checked} schedules checked", *done[:MOST_NAMED], *more]) + "."


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"
