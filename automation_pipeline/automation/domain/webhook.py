"""The address of a schedule's webhook, checked when it is typed in; it is checked again at every call."""

from collections.abc import Collection

from automation_pipeline.automation.domain.schedule import INVALID_SCHEDULE
from automation_pipeline.core.addresses import check_url
from automation_pipeline.core.errors import InvalidInputError


def check_webhook_url(url: str | None, allowed_origins: Collection[str], complaint: str = INVALID_SCHEDULE) -> None:
    """InvalidInputError names the field and says what is wrong with it."""
    if not url:
        return
    try:
        check_url(url, allowed_origins)
    except InvalidInputError as error:
        raise InvalidInputError(complaint, (("webhookUrl", str(error)),)) from None
