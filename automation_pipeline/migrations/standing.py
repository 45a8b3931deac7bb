"""How far the database is from this version: during a rolling upgrade one step before it or behind
it is well."""

from dataclasses import dataclass

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database


@dataclass(frozen=True)
class Standing:
    """`revision`: None for an empty database. `newest`: of this version."""

    revision: str | None
    newest: str

    @property
    def steps(self) -> int | None:
        """Negative: the database is older. None: nobody can tell."""
        if self.revision == self.newest:
            return 0
        theirs, ours = _number(self.revision), _number(self.newest)
        return None if theirs is None or ours is None or theirs == ours else theirs - ours

    @property
    def is_workable(self) -> bool:
        return self.steps in {-1, 0, 1}

    def __str__(self) -> str:
        if not self.is_workable:
            return f"at {self.revision}, not {self.newest}" if self.revision else "empty"
        if self.steps == 0:
            return f"at {self.newest}"
        if self.steps == 1:
            return (
                f"at {self.revision}, one step after {self.newest}: this version still works on it, "
                "until all is new"
            )
        return (
            f"at {self.revision}, one step before {self.newest}: this version works on it until "
            "`automation db upgrade`"
        )


def standing_of(database: Database) -> Standing:
    revision = migrations.current(database)
    migrations.refuse_unreleased(revision)
    return Standing(revision, migrations.revisions()[-1])


def _number(revision: str | None) -> int | None:
    """Revisions are counted: 0011_production."""
    number = (revision or "").partition("_")[0]
    return int(number) if number.isdecimal() else None
