"""What a change of a rule comes to: the rule as it will be, or every field at fault."""

from collections.abc import Mapping

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.domain.pricing_rule import PricingRule, input_document
from automation_pipeline.pricing.domain.rule import INVALID_RULE, RuleInput, parse_rule

NEVER_NULL = "cannot be null: leave it out to keep it"


def changed_rule(stored: PricingRule, patch: Mapping[str, object]) -> RuleInput:
    """What the patch does not name stays, null clears; selector and transform are replaced whole."""
    said = input_document(stored)
    try:
        return parse_rule({**said, **patch})
    except InvalidInputError as error:
        nulls = {name for name in said if name in patch and patch[name] is None}
        # A currency may be null; if it may not be here, its own sentence says why.
        faults = tuple((name, NEVER_NULL if name in nulls - {"currency"} else why) for name, why in error.fields)
        raise InvalidInputError(INVALID_RULE, faults) from None
