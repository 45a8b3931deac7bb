"""The generated endpoints page is up to date and complete."""

from pathlib import Path

from automation_pipeline_tests.golden.endpoints import endpoints_page

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str) -> list[str]:
    return [
        line
        for line in page.splitlines()
        if line.startswith(("| GET", "| POST", "| PUT", "| PATCH", "| DELETE"))
    ]


def test_the_endpoints_page_is_up_to_date() -> None:
    assert (DOCS / "endpoints.md").read_text(encoding="utf-8") == endpoints_page(), (
        "run `make docs`"
    )


def test_every_endpoint_has_a_description() -> None:
    assert all(len(row.split("|")[-2].strip()) > 10 for row in rows(endpoints_page()))
