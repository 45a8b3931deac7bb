"""What requests about prices name: a project, and where a list goes on."""

import re
from typing import Annotated

from fastapi import Path, Query
from pydantic import BeforeValidator, Field

from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.pricing.domain.pricing_rule import LONGEST_PROJECT

_PATTERN = rf"^[A-Za-z0-9._-]{{1,{LONGEST_PROJECT}}}$"
_NAME = re.compile(_PATTERN)


def _named(given: object) -> object:
    if isinstance(given, str) and not _NAME.fullmatch(given):
        raise ValueError(f"must be 1 to {LONGEST_PROJECT} of the letters A to Z, digits, dots, dashes and underscores")
    return given


ProjectName = Annotated[Annotated[str, Field(pattern=_PATTERN)], BeforeValidator(_named)]
ProjectInPath = Annotated[ProjectName, Path(examples=["default"])]
Project = Annotated[ProjectName | None, Query(description="Only of this project.")]
ItsProject = Annotated[ProjectName, Query(description="The project.")]
RuleId = Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="Only of this rule.")]
RunId = Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="Only of this run.")]
AfterId = Annotated[int, Query(ge=0, le=LARGEST_ID, description="Only what follows the entry of this id.")]
