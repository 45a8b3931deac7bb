"""Payloads of the jobs that this system does itself. That of HTTPS calls: `https_payload`."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.domain.payload_kinds import KnownId

_COMPANY = re.compile(r"^([0-9]{9}|[0-9]{14})$")


class AutomationRunPayload(JsonModel):
    schedule_id: KnownId = Field(description="The automation schedule of which a run is asked for.")


class PricingRulePayload(JsonModel):
    rule_id: KnownId = Field(description="The pricing rule of which a run is asked for.")
    force: StrictBool = Field(
        default=False, description="Whether the rest of the rule after its last run is cut short."
    )


def _number(text: str) -> str:
    if not _COMPANY.fullmatch(text):
        raise ValueError("must be the nine digits of a SIREN or the fourteen of a SIRET")
    return text


class CompanyPayload(JsonModel):
    company: Annotated[
        str,
        AfterValidator(_number),
        Field(description="Its SIREN or SIRET, in digits alone.", json_schema_extra={"pattern": _COMPANY.pattern}),
    ]
    force: StrictBool = Field(default=False, description="Whether the registers are asked however fresh the answer is.")
