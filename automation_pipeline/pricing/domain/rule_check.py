"""One look at whether the shop still has the prices of a run, due or done; and the names that such looks go by."""

import re

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.pricing.domain.reconciliation import FIRST_CHECKS, MismatchSeverity, ReconciliationReport

MANUAL = "manual-"

_FIRST = tuple(name for name, _ in FIRST_CHECKS)
_OTHERS = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}|{MANUAL}[1-9]\d*", re.ASCII)


class RuleCheck(JsonModel):
    """Until `checked_at` is there, it is only due. `worst` is the gravest of the differences that were found."""

    rule_run_id: Id
    name: str
    due_at: Instant
    requested_at: Instant | None
    checked_at: Instant | None
    total_checked: int | None
    mismatches: int | None
    unverified: int | None
    worst: MismatchSeverity | None
    report: ReconciliationReport | None


def refuse_strange_name(name: str) -> None:
    if name not in _FIRST and not _OTHERS.fullmatch(name):
        problem = f"must be {', '.join(_FIRST)}, a day such as 2026-05-04, or {MANUAL}1 and so on"
        raise InvalidInputError("There is no such check.", (("check", problem),))
