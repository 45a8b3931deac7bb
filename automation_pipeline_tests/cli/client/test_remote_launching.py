"""What the command line says when work that was requested on another machine does not begin."""

from typing import cast

from automation_pipeline.cli.operations import RemoteApi
from automation_pipeline.cli.progress import remote_obstacle
from automation_pipeline_tests.tables import every_case


class Readiness:
    def __init__(self, checks: object) -> None:
        self._checks = checks

    def call(self, method: str, path: str, **_: object) -> dict[str, object]:
        assert (method, path) == ("GET", "/health/ready")
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
    missing = remote_obstacle(cast("RemoteApi", Readiness(checks)))
    assert (missing is None) if reason is None else reason in str(missing)
