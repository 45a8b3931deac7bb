"""The difference between the revisions of a database and of this version, and its message."""

from automation_pipeline.migrations.schema_version import SchemaVersion
from automation_pipeline_tests.cases import every_case


@every_case(
    ("revision", "steps", "words"),
    [
        ("0011_here", 0, "at 0011_here"),
        ("0010_past", -1, "one step before 0011_here"),
        ("0012_next", 1, "one step after 0011_here"),
        ("0009_older", -2, "at 0009_older, not 0011_here"),
        ("0013_later", 2, "at 0013_later, not 0011_here"),
        ("0011_another", None, "at 0011_another, not 0011_here"),
        ("somebody_elses", None, "at somebody_elses, not 0011_here"),
        (None, None, "empty"),
    ],
)
def test_the_versions_next_to_the_current_one_are_accepted(
    revision: str | None, steps: int | None, words: str
) -> None:
    standing = SchemaVersion(revision, "0011_here")
    assert standing.steps == steps
    assert standing.is_workable == (steps in {-1, 0, 1})
    assert words in str(standing)
