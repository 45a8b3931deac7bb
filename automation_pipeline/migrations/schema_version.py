"""Compares the database's schema with this version: one revision more or less still works."""

from dataclasses import dataclass

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database


@dataclass(frozen=True)
class SchemaVersion:
    """`revision` is that of the database, None for an empty one; `newest` is that of this version."""

    revision: str | None
    newest: str

    @property
    def steps(self) -> int | None:
        """Negative if the database is older. None if a revision is unknown."""
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


def schema_version(database: Database) -> SchemaVersion:
    revision = migrations.current(database)
    migrations.refuse_unreleased(revision)
    return SchemaVersion(revision, migrations.revisions()[-1])


def _number(revision: str | None) -> int | None:
    """Revisions begin with a number: 0011_production."""
    number = (revision or "").partition("_")[0]
    return int(number) if number.isdecimal() else None
