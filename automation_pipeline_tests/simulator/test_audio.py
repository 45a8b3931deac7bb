"""The audio is valid: a parser of the ID3 tag and the MPEG frames finds only complete frames."""

import pytest

from automation_pipeline.simulator.audio import MAX_SECONDS, mp3, title_of
from automation_pipeline_tests.cases import every_case

BIT_RATES = {1: 32_000}  # of MPEG-1 Layer III, by index; only the one that the simulator uses
SAMPLE_RATES = {0: 44_100, 1: 48_000, 2: 32_000}


def frame_seconds(sound: bytes) -> list[float]:
    """The length of each frame after the ID3 tag. Fails unless the frames fill the rest of the file."""
    assert sound[:5] == b"ID3\x03\x00"
    offset = 10 + sum(
        byte << shift for byte, shift in zip(sound[6:10], (21, 14, 7, 0), strict=True)
    )
    lengths: list[float] = []
    while offset < len(sound):
        first, second, third, fourth = sound[offset : offset + 4]
        assert (first, second) == (0xFF, 0xFB), "MPEG-1 Layer III without CRC"
        assert fourth >> 6 == 3, "mono"
        sample_rate = SAMPLE_RATES[third >> 2 & 3]
        size = 144 * BIT_RATES[third >> 4] // sample_rate + (third >> 1 & 1)
        assert not any(sound[offset + 4 : offset + size]), "silence"
        lengths.append(1152 / sample_rate)
        offset += size
    assert offset == len(sound)
    return lengths


@every_case(
    ("requested", "expected"),
    [(0, 0.036), (1, 1), (2.5, 2.5), (3, MAX_SECONDS), (1500, MAX_SECONDS)],
)
def test_a_recording_has_whole_frames_and_about_the_requested_length(
    requested: float, expected: float
) -> None:
    assert sum(frame_seconds(mp3("880001", requested))) == pytest.approx(expected, abs=0.036)


def test_the_title_of_a_recording_is_its_call_id() -> None:
    sound = mp3("95300000301", 1)
    assert sound[10:14] == b"TIT2"
    assert sound[20 : 21 + int.from_bytes(sound[14:18], "big") - 1] == b"\x0095300000301"


@every_case("head", [b"", b"ID3", b"ID3\x03\0\0", bytes(64), mp3("x", 1).replace(b"TIT2", b"TPE1")])
def test_the_title_is_read_back_and_other_bytes_have_none(head: bytes) -> None:
    assert title_of(mp3("95300000301", 1)) == "95300000301"
    assert title_of(head) is None
