"""Payloads of the jobs that this system does itself. That of HTTPS calls: `https_payload`."""

from typing import Annotated

from pydantic import Field, StrictBool

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.domain.payload_kinds import KnownId


class AutomationRunPayload(JsonModel):
    schedule_id: KnownId = Field(description="The automation schedule of which a run is asked for.")


class PricingRulePayload(JsonModel):
    rule_id: KnownId = Field(description="The pricing rule of which a run is asked for.")
    force: StrictBool = Field(
        default=False, description="Whether the rest of the rule after its last run is cut short."
    )


class CompanyPayload(JsonModel):
    company: Annotated[
        str, Field(pattern=r"^([0-9]{9}|[0-9]{14})$", description="Its SIREN or SIRET, in digits alone.")
    ]
    force: StrictBool = Field(default=False, description="Whether the registers are asked however fresh the answer is.")
