"""Small timelines of calls for tests."""

from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import Timeline, TimelineChunk, TimelineRecording
from automation_pipeline.audits.models.configs import AuditConfig, AuditStep, Severity


def chunk(index: int, text: str) -> TimelineChunk:
    """A chunk of thirty seconds."""
    return TimelineChunk(
        index, index * 30.0, index * 30.0 + 29.5, text.count("\n") + 1, ("speaker_0",), text
    )


def recording(index: int, *texts: str) -> TimelineRecording:
    return TimelineRecording(
        index=index,
        call_id=f"9817000001{index}",
        date="03/02/2026",
        time=f"1{index}:14",
        url=f"https://records.example.test/{index}.mp3",
        duration_seconds=30 * len(texts),
        from_number="0612345678",
        to_number="0145678901",
        chunks=tuple(chunk(at, text) for at, text in enumerate(texts)),
    )


def timeline(*recordings: list[str]) -> Timeline:
    return Timeline(tuple(recording(index, *texts) for index, texts in enumerate(recordings)))


def timelines(longest: int = 300) -> st.SearchStrategy[Timeline]:
    result = st.text(max_size=longest) | st.lists(
        st.sampled_from(["délai", "garantie", "=== FIN", '"', "\n"]), max_size=30
    ).map(" ".join)
    return st.lists(st.lists(result, max_size=5), max_size=3).map(lambda calls: timeline(*calls))


def step(**other: object) -> AuditStep:
    return AuditStep(
        **{
            "position": 1,
            "name": "Étape",
            "prompt": "Vérifie.",
            "control_points": ("Le délai est annoncé",),
            "severity_level": Severity.HIGH,
        }
        | other
    )


def config(*steps: AuditStep, system_prompt: str | None = None) -> AuditConfig:
    return AuditConfig(name="Contrôle", steps=steps, system_prompt=system_prompt)
