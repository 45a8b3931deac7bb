"""Realtime channels of events."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.events import (
    ChannelKind,
    ChannelRefusal,
    RealtimeChannel,
    channel_id,
    channels_of,
    parse_channel,
)
from automation_pipeline_tests.cases import every_case

MALFORMED, NOT_ALLOWED = ChannelRefusal.MALFORMED, ChannelRefusal.NOT_ALLOWED
FIELDS = ("audit_id", "audit_db_id", "fiche_id", "jobId", "job_id", "batch_id", "other")
PAYLOADS = st.dictionaries(st.sampled_from(FIELDS), st.text() | st.integers() | st.none())


def names(name: str, payload: dict[str, Any], *, private: bool = True) -> list[str]:
    return [channel.name(private=private) for channel in channels_of(name, payload)]


@every_case(
    ("name", "payload", "channels"),
    [
        (
            "audit.started",
            {"audit_id": "audit-1-2", "audit_db_id": "9", "fiche_id": "1"},
            ["audit-audit-1-2", "audit-9", "fiche-1"],
        ),
        ("audit.step_started", {"audit_id": "9", "audit_db_id": "9"}, ["audit-9"]),
        (
            "automation.run.started",
            {"job_id": "automation-run-3", "run_id": "3"},
            ["job-automation-run-3"],
        ),
        ("fiches.progressive_fetch.progress", {"jobId": "a", "job_id": "b"}, ["job-a"]),
        ("fiches.progressive_fetch.progress", {"jobId": 5, "job_id": "b"}, ["job-b"]),
        ("batch.progress", {"batch_id": "b1"}, ["job-b1", "global"]),
        ("notification", {"fiche_id": "1"}, ["fiche-1", "global"]),
        ("anything", {}, ["global"]),
        ("anything", {"fiche_id": 1, "audit_id": None, "job_id": ""}, ["global"]),
        ("transcription.started", {"fiche_id": "été/1 2"}, ["fiche-_t__1_2"]),
        ("automation/completed", {"fiche_id": "1"}, []),
        ("fiche/transcribed", {"fiche_id": "1"}, []),
        ("automation.run.completed", {}, ["global"]),
        ("automation.target.apply", {}, []),
        ("automation.reconciliation.mismatch", {"job_id": "1"}, []),
        ("automation.circuit.opened", {}, []),
        ("automation.dlq.report", {}, []),
        ("rule.created", {}, []),
        ("rule.run.rolled_back", {"fiche_id": "1"}, []),
        ("policy.removed", {}, []),
        ("ruled", {}, ["global"]),
        ("schedule.fired", {"scheduleId": "a", "orgId": "acme", "jobId": "7"}, []),
        ("schedule.auto_paused", {"scheduleId": "a", "orgId": "acme"}, []),
        ("job_run.failed", {"jobRunId": "7", "orgId": "acme", "error": "Disk full"}, []),
        ("scheduled", {}, ["global"]),
    ],
)
def test_an_event_is_sent_to_the_channels_of_its_payload(
    name: str, payload: dict[str, Any], channels: list[str]
) -> None:
    assert names(name, payload) == [f"private-{channel}" for channel in channels]
    assert names(name, payload, private=False) == channels


def test_a_long_channel_id_is_truncated() -> None:
    assert names("x", {"audit_id": "a" * 500}) == ["private-audit-" + "a" * 180]


@every_case(
    ("name", "parsed"),
    [
        ("private-audit-12", RealtimeChannel(ChannelKind.AUDIT, "12")),
        (
            "private-audit-audit-1900417-11-x",
            RealtimeChannel(ChannelKind.AUDIT, "audit-1900417-11-x"),
        ),
        ("private-fiche-1900417", RealtimeChannel(ChannelKind.FICHE, "1900417")),
        ("private-job-automation-run-3", RealtimeChannel(ChannelKind.JOB, "automation-run-3")),
        ("private-job-" + "x" * 188, RealtimeChannel(ChannelKind.JOB, "x" * 188)),
        ("private-global", RealtimeChannel(ChannelKind.GLOBAL)),
        ("presence-global", RealtimeChannel(ChannelKind.PRESENCE_GLOBAL)),
        ("presence-org-7", RealtimeChannel(ChannelKind.PRESENCE_ORG, "7")),
        ("private-fiche-12a", NOT_ALLOWED),
        ("private-fiche-", NOT_ALLOWED),
        ("private-audit-", NOT_ALLOWED),
        ("private-audit", NOT_ALLOWED),
        ("presence-org-", NOT_ALLOWED),
        ("private-global-x", NOT_ALLOWED),
        ("presence-global-x", NOT_ALLOWED),
        ("private-presence-org-7", NOT_ALLOWED),
        ("private-encrypted-fiche-1", NOT_ALLOWED),
        ("private-user-1", NOT_ALLOWED),
        ("private-org-1", NOT_ALLOWED),
        ("private-tenant-1", NOT_ALLOWED),
        ("private-realtime-test", NOT_ALLOWED),
        ("fiche-1", NOT_ALLOWED),
        ("Private-fiche-1", NOT_ALLOWED),
        ("", MALFORMED),
        ("pusher-private-fiche-1", MALFORMED),
        ("private-fiche-1\n", MALFORMED),
        ("private-fiche-1:2", MALFORMED),
        ("private-fiche-١", MALFORMED),
        ("#server-to-user-1", MALFORMED),
        ("private-job-" + "x" * 189, MALFORMED),
    ],
)
def test_a_channel_name_is_parsed_or_rejected(
    name: str, parsed: RealtimeChannel | ChannelRefusal
) -> None:
    assert parse_channel(name) == parsed


@given(
    st.from_regex(r"[a-z]{1,8}[./][a-z]{1,8}", fullmatch=True) | st.just("notification"), PAYLOADS
)
def test_derived_channel_names_are_parsed_back(name: str, payload: dict[str, Any]) -> None:
    if isinstance(payload.get("fiche_id"), str):
        payload["fiche_id"] = str(len(payload["fiche_id"]))
    channels = channels_of(name, payload)
    assert len(set(channels)) == len(channels) <= 10
    for channel in channels:
        assert parse_channel(channel.name()) == channel
        assert channel.name() == f"private-{channel.name(private=False)}"


@given(st.text())
def test_any_text_is_rejected_or_parses_to_the_same_name(text: str) -> None:
    for name in (
        text,
        f"private-{text}",
        f"presence-org-{text}",
        f"private-audit-{channel_id(text)}",
    ):
        parsed = parse_channel(name)
        assert parsed in {MALFORMED, NOT_ALLOWED} or (
            isinstance(parsed, RealtimeChannel) and parsed.name() == name
        )
