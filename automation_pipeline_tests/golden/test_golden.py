"""What users and other systems depend on stays as it is, or changes with a diff that a reviewer
sees."""

import difflib

import pytest

from automation_pipeline_tests.golden.documents import DOCUMENTS, FOLDER

LONGEST_DIFF = 200


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_public_surface_matches_the_golden_files(name: str) -> None:
    accepted, present = (FOLDER / name).read_text(encoding="utf-8"), DOCUMENTS[name]()
    if accepted != present:
        lines = difflib.unified_diff(
            accepted.splitlines(), present.splitlines(), "accepted", "present", lineterm=""
        )
        shown = "\n".join([line for _, line in zip(range(LONGEST_DIFF), lines, strict=False)])
        pytest.fail(
            f"{name} changed. If this is intended, accept it with `make golden` and commit.\n{shown}",
            False,
        )
