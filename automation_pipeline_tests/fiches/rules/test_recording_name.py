"""The name of a recording's file: its parts, what surrounds it in a URL, and names that are not the
CRM's."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.fiches.models.fiches import RecordingName, recording_name
from automation_pipeline_tests.fakes.crm import recording
from automation_pipeline_tests.tables import every_case

UUID = "0a1b2c3d-1111-4222-8333-444455556666"
NAME = f"{UUID}-03-02-26-10h14-33100000001-33600000001.mp3"
READ = RecordingName(UUID, "33100000001", "33600000001")


@every_case(
    "url",
    [
        NAME,
        f"https://records.example.test/t/{NAME}",
        f"https://records.example.test/{NAME}?token=a/b&x=1.mp3",
        f"https://records.example.test/{NAME}#t=10/2",
        f"/t/{NAME.upper()}",
        f"http://[/{NAME}",
    ],
)
def test_the_last_segment_of_the_path_is_read(url: str) -> None:
    assert recording_name(url) == READ


@every_case(
    "url",
    [
        "",
        "https://records.example.test/1.mp3",
        f"https://records.example.test/{NAME}/play",
        f"https://records.example.test/{NAME}.wav",
        f"https://records.example.test/x{NAME}",
        f"https://records.example.test/play?file={NAME}",
        NAME.replace("10h14", "10:14"),
        NAME.replace("33100000001", "anonyme"),
        NAME.replace("0a1b2c3d", "0a1b2c3"),
        NAME.replace("33100000001", "٣٣"),
    ],
)
def test_another_name_tells_nothing(url: str) -> None:
    assert recording_name(url) is None


@given(st.text())
def test_any_text_is_a_name_or_none(url: str) -> None:
    assert recording_name(url) in {None, READ}


def test_date_and_time_are_those_of_the_start_on_the_clock_of_paris() -> None:
    """The name says 10h14 in local time, the start says 09:14 in UTC: they are one instant."""
    call = recording("1", url=NAME)
    assert (call.recording_date, call.recording_time) == ("03/02/2026", "10:14")
    summer = replace(call, started_at=call.started_at.replace(month=7, hour=22))
    assert (summer.recording_date, summer.recording_time) == ("04/07/2026", "00:14")
