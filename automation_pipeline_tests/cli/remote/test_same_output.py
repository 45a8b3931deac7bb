"""Tests that commands print the same locally and through the API of a remote machine."""

from automation_pipeline_tests.audits.configurations import document
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.cli.remote.served import RemoteTerminal
from automation_pipeline_tests.cli.terminal import DAILY

READ_COMMANDS = """
schedules list
schedules list --include-inactive --json
schedules show 1
schedules show 1 --json
schedules show 99
schedules next 2 --after 2026-03-28T00:00:00Z --count 3
schedules next 2 --after 2026-03-28T00:00:00Z --json
schedules occurrences 1
schedules occurrences 2 --json
schedules occurrences 99
runs list
runs list --json
runs list --schedule 1 --status partial --status failed
runs list --schedule 99 --json
runs list --limit 1 --offset 5
runs show 1
runs show 1 --json
runs show 99
runs logs 1
runs logs 1 --json
runs logs 1 --level warning
runs logs 1 --follow
runs watch 1 --json
runs report 1 --output -
runs report 99 --output -
fiches show 1
fiches show 1 --json
fiches show 987654
fiches list --date 2026-02-03
fiches list --date 2026-02-03 --json
fiches list --date 2026-02-04
audits list
audits list --json
audits list --fiche 1 --fiche 2 --config 1 --status completed
audits list --all-versions --json
audits show 1
audits show 2 --steps
audits show 1 --json
audits show 99
audit-configs list
audit-configs list --all --json
audit-configs show 1
audit-configs show 1 --json
audit-configs show 99
audit-configs export 1
tokens list
tokens list --all --json
doctor
doctor --json
"""

REFUSED = """
schedules run-now 99
schedules pause 99
schedules delete 99 --yes
schedules skip-next 1
runs cancel 1 --yes
runs cancel 99 --yes
runs retry 99
audit 1 --config 99
audit 1 2 --config 99
audits review 1 --step 99 --conforme CONFORME
audits review 99 --step 1 --conforme CONFORME
audits review 1 --step 1 --conforme CONFORME --score 900
audits rerun 99 --step 1
audits delete 99
audits restore 99
audit-configs activate 99
audit-configs delete 1
audit-configs delete 99
audit-configs reorder 1 1
tokens create --permission nonsense --scope ALL
tokens create --permission fiches --scope GROUP
tokens revoke 99
transcribe seven
"""


FAULTY: list[tuple[str, object]] = [
    ("schedules create --file -", {**DAILY, "timeOfDay": "25:00", "colour": "red"}),
    ("schedules create --file -", {**DAILY, "specificAuditConfigs": ["77"]}),
    ("schedules update 1 --file -", {"name": None}),
    ("schedules run-now 1 --selection -", {"mode": "nonsense"}),
    ("audit-configs import -", {"name": "Empty", "steps": []}),
    ("audit-configs validate -", {"name": "", "steps": [{}]}),
    ("audit-configs validate -", document("Good", 2)),
]


def test_output_is_the_same_through_the_api(remote: RemoteTerminal, stored: AuditHarness) -> None:
    remote.local.create()
    remote.local.json("audits", "delete", "2")
    options = "--name [nightly] --permission automation.write --scope ALL"
    remote.local.json("tokens", "create", *options.split())
    assert remote.differences(READ_COMMANDS.strip().splitlines()) == []


def test_rejections_are_the_same_through_the_api(
    remote: RemoteTerminal, stored: AuditHarness
) -> None:
    commands = REFUSED.strip().splitlines()
    assert remote.differences(f"{command} --json" for command in commands[1::2]) == []
    assert remote.differences(commands[::2]) == []
    ended = [remote.run(*command.split()) for command in commands]
    assert {(end.code > 0, end.out, len(end.err.splitlines())) for end in ended} == {(True, "", 1)}


def test_input_errors_are_the_same_through_the_api(
    remote: RemoteTerminal, stored: AuditHarness
) -> None:
    for command, given in FAULTY:
        assert remote.differences([command], given) == []
