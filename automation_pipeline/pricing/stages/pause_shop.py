"""Stop writing prices in a shop until somebody says otherwise. Runs stay as they are, and reading goes on."""

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.store.shops import ShopStanding, set_pause
from automation_pipeline.storage.database import Database

LONGEST_REASON = 1000


def pause_shop(shop: str, *, database: Database, actor: str, reason: str | None = None) -> ShopStanding:
    """Workers stop before their next calls. Safe to repeat: the first pause lasts, with the newest reason."""
    if reason is not None and len(reason) > LONGEST_REASON:
        raise InvalidInputError("Invalid pause data", (("reason", f"must have at most {LONGEST_REASON} characters"),))
    with database.transaction() as session:
        return set_pause(session, shop, by=actor, reason=reason)
