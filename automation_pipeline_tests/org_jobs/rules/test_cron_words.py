"""A cron expression in plain words."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import Cron
from automation_pipeline.org_jobs.rules.previews import describe_cron
from automation_pipeline_tests.tables import every_case


@every_case(
    ("expression", "words"),
    [
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("*/5 * * * 1-5", "Every 5 minutes from Monday to Friday"),
        ("0 * * * *", "Every hour"),
        ("30 * * * *", "Every hour at 30 minutes past"),
        ("@hourly", "Every hour"),
        ("0 */4 * * *", "Every 4 hours, from midnight on"),
        ("0 2 * * *", "At 02:00 every day"),
        ("@daily", "At 00:00 every day"),
        ("30 2,14 * * *", "At 02:30 and 14:30 every day"),
        ("0 9 * * 1-5", "At 09:00 from Monday to Friday"),
        ("0 9 * * MON-FRI", "At 09:00 from Monday to Friday"),
        ("0 9 * * 0", "At 09:00 on Sunday"),
        ("0 9 * * 7", "At 09:00 on Sunday"),
        ("0 9 * * 0,1,3", "At 09:00 on Monday, Wednesday and Sunday"),
        ("0 0 1 * *", "At 00:00 on day 1 of every month"),
        ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of every month"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
        ("@yearly", "At 00:00 on day 1 in January"),
        ("0 0 * 6-8 *", "At 00:00 every day from June to August"),
        ("0 0 13 * 5", "At 00:00 on day 13 or on Friday"),
        ("0 0 29 FEB *", "At 00:00 on day 29 in February"),
        ("1-20/3 2 * * *", "1-20/3 2 * * *"),
        ("*/7 * * * *", "*/7 * * * *"),
        ("0 0-12/2 * * *", "0 0-12/2 * * *"),
        ("0 0 */2 * *", "0 0 */2 * *"),
    ],
)
def test_common_forms_are_said_in_words_and_others_as_they_are(expression: str, words: str) -> None:
    Cron.parse(expression)
    assert describe_cron(expression) == words


@given(
    st.lists(
        st.from_regex(r"\A(\*|L|[0-9]{1,2}|MON|[0-9]-[0-9])(,[0-9]|/[0-9]{1,2})?\Z"),
        min_size=5,
        max_size=5,
    )
)
def test_whatever_can_be_read_has_words(fields: list[str]) -> None:
    expression = " ".join(fields)
    try:
        Cron.parse(expression)
    except InvalidInputError:
        return
    words = describe_cron(expression)
    assert words == expression or words.startswith(("Every ", "At "))
