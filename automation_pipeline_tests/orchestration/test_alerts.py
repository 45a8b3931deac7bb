"""The settings select the receivers of a package's alerts."""

from automation_pipeline.core.alerts import AlertReceiver, AlertReceivers, AlertSeverity
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.housekeeping import receivers_of
from automation_pipeline_tests.cases import every_case

WARNING, CRITICAL = AlertSeverity.WARNING, AlertSeverity.CRITICAL
SLACK = AlertReceiver("https://hooks.test/slack", "slack", "key-1")
PAGER = AlertReceiver("https://hooks.test/pager", "pagerduty", "key-1")
COMMON = {"alert_webhook_url": SLACK.url, "alert_webhook_shape": SLACK.shape}
OWN = {"critical_alert_webhook_url": PAGER.url, "critical_alert_webhook_shape": PAGER.shape}


@every_case("package", ["pricing", "org_jobs"])
@every_case(
    ("given", "receivers"),
    [
        ({}, {}),
        (COMMON, {WARNING: SLACK, CRITICAL: SLACK}),
        (OWN, {CRITICAL: PAGER}),
        (COMMON | OWN, {WARNING: SLACK, CRITICAL: PAGER}),
    ],
)
def test_critical_alerts_use_their_own_receiver_or_the_common_one(
    package: str, given: dict[str, str], receivers: AlertReceivers
) -> None:
    other = "org_jobs" if package == "pricing" else "pricing"
    named = {f"{package}_{name}": value for name, value in given.items()}
    settings = Settings(pagerduty_routing_key="key-1", **named)  # type: ignore[arg-type]
    assert receivers_of(settings, package) == receivers  # type: ignore[arg-type]
    assert receivers_of(settings, other) == {}
