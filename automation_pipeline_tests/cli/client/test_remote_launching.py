"""What the remote client says when work that was requested on another machine does not begin."""

from typing import cast

from automation_pipeline.cli.client.http import Api
from automation_pipeline.cli.client.remote import RemoteLaunching
from automation_pipeline_tests.tables import every_case


class Readiness:
    def __init__(self, checks: object) -> None:
        self._checks = checks

    def get(self, path: str) -> dict[str, object]:
        assert path == "/health/ready"
        return {"checks": self._checks}


@every_case(
    ("checks", "reason"),
    [
        ([{"name": "daemon", "state": "failed", "detail": "is silent."}], "daemon there is silent"),
        ([{"name": "daemon", "state": "ok"}], None),
        ([{"name": "database", "state": "failed", "detail": "is away."}], None),
        (None, None),
    ],
)
def test_only_a_daemon_that_failed_is_a_reason(checks: object, reason: str | None) -> None:
    missing = RemoteLaunching(cast("Api", Readiness(checks))).missing(["key"], 20)
    assert (missing is None) if reason is None else reason in str(missing)
