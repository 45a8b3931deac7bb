"""The page of the endpoints is the one that the routes and the rules write, and leaves nothing out."""

from pathlib import Path

from automation_pipeline.api.page import endpoints_page
from automation_pipeline.api.rules import RULES
from automation_pipeline_tests.tables import every_case

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(("| GET", "| POST", "| PUT", "| PATCH", "| DELETE"))]


def test_the_page_of_the_documentation_is_the_one_that_the_routes_write() -> None:
    assert (DOCS / "endpoints.md").read_text(encoding="utf-8") == endpoints_page(), "run `make docs`"


def test_every_rule_has_its_row_once() -> None:
    named = [tuple(cell.strip(" `") for cell in row.split("|")[1:3]) for row in rows(endpoints_page())]
    assert sorted(named) == sorted(RULES)


def test_every_row_says_what_the_endpoint_does() -> None:
    assert all(len(row.split("|")[-2].strip()) > 10 for row in rows(endpoints_page()))


@every_case(
    "beginning",
    [
        "| GET | `/health` | none | | | ",
        "| GET | `/api/auth/me` | any | | | ",
        "| POST | `/api/automation/trigger` | `automation.write` | body | yes | ",
        "| GET | `/api/automation/runs` | `automation.read` | list | | ",
        "| POST | `/api/transcriptions/{fiche_id}` | `transcriptions.write` | path | yes | ",
        "| POST | `/api/pricing/rules` | `pricing.write` | | yes | ",
        "| POST | `/api/pricing/rules/{rule_id}/preview` | `pricing.read` | | | ",
        "| POST | `/api/pricing/runs/{rule_run_id}/apply` | `pricing.runs.write` | | yes | ",
        "| GET | `/api/organisations` | `organisations.read` (of one's own `org-jobs.read`) | organisation | | ",
        "| POST | `/api/org-schedules/{org_schedule_id}/run-now` | `org-jobs.write` | organisation | yes | ",
        "| POST | `/api/admin/tokens` | `admin.permissions.write` | | | ",
    ],
)
def test_a_row_tells_permission_scope_and_key(beginning: str) -> None:
    assert sum(row.startswith(beginning) for row in rows(endpoints_page())) == 1
