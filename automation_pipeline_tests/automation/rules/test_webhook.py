"""The address of a schedule's webhook, when it is typed in."""

import pytest

from automation_pipeline.automation.rules.schedules import check_webhook_url
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case


@every_case("url", [None, "", "https://hooks.example.com/a"])
def test_none_and_a_public_one_are_fine(url: str | None) -> None:
    check_webhook_url(url, ())


def test_a_refusal_names_the_field_and_the_reason() -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid automation schedule data$") as caught:
        check_webhook_url("http://10.0.0.1/", ())
    assert caught.value.fields == (("webhookUrl", "webhookUrl IP not allowed"),)


def test_a_private_one_is_fine_when_an_operator_has_listed_it() -> None:
    check_webhook_url("http://10.0.0.1/", ("http://10.0.0.1",))
