"""A look reads as a sentence or two."""

from automation_pipeline.pricing.rules.runs import DuePriceRules
from automation_pipeline_tests.tables import every_case


@every_case(
    ("looked", "words"),
    [
        (DuePriceRules(), "No rule is due."),
        (DuePriceRules(started=(7,)), "Started run 7."),
        (
            DuePriceRules(started=(7, 8), put_off=(3,)),
            "Started runs 7, 8. Put off until the run at work is over: rule 3.",
        ),
        (DuePriceRules(ended=(9, 4)), "The promotion of runs 9, 4 is over: to be rolled back."),
        (DuePriceRules(missed=(2,)), "Not started, for the promotion is over already: rule 2."),
        (DuePriceRules(before=(2,)), "Not started again for the same time: rule 2."),
        (
            DuePriceRules(started=tuple(range(1, 13))),
            "Started runs 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more.",
        ),
    ],
)
def test_what_a_look_has_come_to(looked: DuePriceRules, words: str) -> None:
    assert str(looked) == words
