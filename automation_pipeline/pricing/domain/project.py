"""The names of projects, which group rules under guardrails of their own."""

import re

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.domain.pricing_rule import LONGEST_PROJECT

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_PROJECT}}}")


def check_project(project_id: str, complaint: str) -> None:
    if _NAME.fullmatch(project_id) is None:
        fault = f"must be 1 to {LONGEST_PROJECT} of the letters A to Z, digits, dots, dashes and underscores"
        raise InvalidInputError(complaint, (("project", fault),))
