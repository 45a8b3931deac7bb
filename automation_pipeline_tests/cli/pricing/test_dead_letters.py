"""Dead letters from the command line: reported by reason with advice, tried again, acknowledged."""

import pytest

from automation_pipeline_tests.cli.pricing.workshop import Workshop
from automation_pipeline_tests.fakes.shop import FakeShop


@pytest.fixture
def failed(workshop: Workshop, shop: FakeShop) -> str:
    """A run of which one price was refused by the shop, and one was changed by hand."""
    shop.refuse("11")
    run_id = workshop.previewed()
    shop.edit("12", amount=1234)
    workshop.json("runs", "apply", run_id)
    workshop.work(run_id)
    return run_id


def test_the_report_tells_reasons_and_what_to_do(workshop: Workshop, failed: str) -> None:
    report = workshop.json("dlq")
    assert (report["totalFailed"], report["retryable"]) == (2, 0)
    assert report["byErrorType"] == {"conflict": 1, "validation": 1}
    said = workshop.said("dlq")
    assert (
        "2 failed: 0 worth another try, 0 older than a day. By reason: 1 conflict, 1 validation."
        in said
    )
    assert "- 1 variant had another price than was previewed: preview again." in said
    assert "1/11 20" in said
    assert workshop.said("dlq", "--project", "other") == "Project other has no dead letter."


def test_they_are_tried_again_by_force_when_the_cause_is_removed(
    workshop: Workshop, shop: FakeShop, failed: str
) -> None:
    said = workshop.said("dlq", "--retry")
    assert said == "No dead letter can be retried now: remove the cause, then use --retry --force."
    shop.accept("11")
    assert workshop.json("dlq", "--retry", "--force") == {"project": "default", "run_ids": [failed]}
    workshop.work(failed)
    assert workshop.json("dlq")["byErrorType"] == {"conflict": 1}
    said = workshop.said("dlq", "--retry", "--force")
    assert (
        said == f"Tried again in run {failed}: `automation pricing runs watch {failed}` follows it."
    )


def test_what_is_acknowledged_is_reported_no_more(workshop: Workshop, failed: str) -> None:
    one = workshop.target(failed, "11")
    assert workshop.json("dlq", "--acknowledge", "--target", one) == {
        "project": "default",
        "acknowledged": 1,
    }
    assert [entry["targetId"] for entry in workshop.json("dlq")["entries"]] == [
        workshop.target(failed, "12")
    ]
    assert workshop.said("dlq", "--acknowledge") == "1 dead letter of default acknowledged."
    assert workshop.json("dlq")["totalFailed"] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--retry", "--acknowledge"],
            "Use either --retry or --acknowledge.",
        ),
        (["--force"], "--force goes with --retry."),
        (
            ["--target", "1"],
            "--target goes with --acknowledge: `automation pricing runs retry` tries some again.",
        ),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    workshop: Workshop, options: list[str], sentence: str
) -> None:
    assert workshop.refused("dlq", *options, code=2) == sentence
