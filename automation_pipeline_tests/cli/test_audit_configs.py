"""Tests of `automation audit-configs`: import, show, export, and deactivate; invalid input."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from automation_pipeline_tests.audits.configurations import FULL, add_audit, document, step_document
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


def import_config(terminal: Terminal, given: object, *flags: str) -> Any:
    return terminal.json("audit-configs", "import", "-", *flags, given=given)


def listed(terminal: Terminal, *flags: str) -> list[dict[str, object]]:
    return terminal.json("audit-configs", "list", *flags)["audit_configs"]


def audit(terminal: Terminal, config_id: str) -> None:
    with terminal.database.transaction() as session:
        add_audit(session, int(config_id))


def refused(terminal: Terminal, arguments: str, code: int, given: bytes = b"") -> str:
    ended = terminal.run("audit-configs", *arguments.split(), given=given)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.endswith(".\n")
    assert ended.err.count("\n") == 1
    return ended.err.strip()


def test_a_file_is_created_unchanged_and_updated(terminal: Terminal) -> None:
    assert import_config(terminal, FULL) == {
        "id": "1",
        "name": FULL["name"],
        "outcome": "created",
        "steps": 2,
    }
    assert import_config(terminal, FULL)["outcome"] == "unchanged"
    changed = FULL | {"description": "Another"}
    sentence = refused(terminal, "import - --json", 1, json.dumps(changed).encode())
    assert sentence.endswith("and other content (description): add --update to replace it.")
    assert import_config(terminal, changed, "--update") == {
        "id": "1",
        "name": FULL["name"],
        "outcome": "updated",
        "steps": 2,
    }
    (terminal.folder / "config.json").write_text(json.dumps(changed), encoding="utf-8-sig")
    ended = terminal.run("audit-configs", "import", "config.json")
    assert ended.out == "Audit config 1 is unchanged: Conformité — é, 2 step(s).\n"


def test_the_list_shows_active_configurations_or_all(terminal: Terminal) -> None:
    import_config(terminal, FULL)
    import_config(terminal, document(isActive=False))
    audit(terminal, "1")
    active = {
        "id": "1", "name": FULL["name"], "isActive": True, "runAutomatically": True, "steps": 2, "totalWeight": 12,
        "audits": 1,
    }  # fmt: skip
    assert listed(terminal) == [active]
    assert [
        (one["id"], one["isActive"], one["totalWeight"]) for one in listed(terminal, "--all")
    ] == [
        ("2", False, 15),
        ("1", True, 12),
    ]
    table = terminal.run("audit-configs", "list", "--all").out.splitlines()
    assert table[0].split() == ["id", "name", "active", "automatic", "steps", "weight", "audits"]
    assert table[1].split() == ["2", "Sales", "no", "no", "3", "15", "0"]
    assert listed(terminal) == [active]


def test_show_prints_every_step_with_its_weight(terminal: Terminal) -> None:
    import_config(terminal, FULL | {"name": "[bold]loud"})
    output = terminal.run("audit-configs", "show", "1").out
    for fact in ("1  [bold]loud", "active, runs automatically", "All fields are given", "12"):
        assert fact in output
    rows = [line.split() for line in output.splitlines()[-3:]]
    assert rows == [
        ["position", "name", "severity", "weight", "critical", "points", "step", "id"],
        ["1", "Step", "1", "CRITICAL", "10", "yes", "2", "1"],
        ["2", "Step", "2", "HIGH", "2", "no", "2", "2"],
    ]


def test_json_output_adds_ids_and_times_to_the_imported_fields(terminal: Terminal) -> None:
    import_config(terminal, FULL)
    shown = terminal.json("audit-configs", "show", "1")
    assert shown["id"] == "1"
    assert shown["createdAt"] == shown["updatedAt"]
    assert shown["createdAt"].endswith("Z")
    assert [step.pop("id") for step in shown["steps"]] == ["1", "2"]
    for name, value in FULL.items():
        if name != "steps":
            assert shown[name] == value
    for given, stored in zip(FULL["steps"], shown["steps"], strict=True):
        assert given.items() <= stored.items()


@pytest.mark.parametrize("given", [FULL, document(isActive=False)])
def test_an_export_can_be_imported_into_another_database_and_back(
    terminal: Terminal, given: dict[str, object]
) -> None:
    import_config(terminal, given)
    exported = terminal.run("audit-configs", "export", "1")
    assert (exported.code, exported.err) == (0, "")
    assert terminal.json("audit-configs", "export", "1") == json.loads(exported.out)
    assert terminal.run("audit-configs", "export", "1", "--output", "-") == exported
    assert import_config(terminal, json.loads(exported.out))["outcome"] == "unchanged"
    written = terminal.run("audit-configs", "export", "1", "--output", "out.json")
    assert written.out == "Audit config 1 is written to out.json.\n"
    assert (terminal.folder / "out.json").read_text(encoding="utf-8") == exported.out
    assert terminal.json("audit-configs", "export", "1", "-o", "out.json") == {
        "id": "1",
        "file": "out.json",
    }
    terminal.run("audit-configs", "delete", "1")
    assert terminal.json("audit-configs", "import", "out.json")["outcome"] == "created"


@pytest.mark.parametrize("given", [FULL, document(version="2", totalSteps=3, verificationNote="-")])
def test_validating_a_file_does_not_store_it(terminal: Terminal, given: object) -> None:
    assert terminal.json("audit-configs", "validate", "-", given=given) == {
        "valid": True,
        "errors": [],
    }
    ended = terminal.run("audit-configs", "validate", "-", given=json.dumps(given).encode())
    assert (ended.code, ended.out, ended.err) == (0, "valid\n", "")
    assert listed(terminal, "--all") == []


def test_every_error_in_a_file_is_reported_and_nothing_is_imported(terminal: Terminal) -> None:
    given = document(nmae="x") | {
        "steps": [step_document(0, weight=11), step_document(2, severityLevel="BAD\nLY")]
    }
    result = terminal.json("audit-configs", "validate", "-", given=given, code=1)
    assert (result["valid"], set(result)) == (False, {"valid", "errors"})
    fields = {error["field"] for error in result["errors"]}
    assert {"nmae", "steps.0.weight", "steps.1.severityLevel", "steps"} <= fields
    ended = terminal.run("audit-configs", "validate", "-", given=json.dumps(given).encode())
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.splitlines() == [
        f"{error['field']}: {error['message']}" for error in result["errors"]
    ]
    sentence = refused(terminal, "import -", 2, json.dumps(given).encode())
    assert all(field in sentence for field in fields)
    assert listed(terminal, "--all") == []


def test_validation_needs_no_database(terminal: Terminal) -> None:
    terminal.export(DATABASE_URL="postgresql://anna:s3cret@127.0.0.1:9/work")
    assert terminal.json("audit-configs", "validate", "-", given=FULL)["valid"] is True


def test_a_deactivated_configuration_can_be_reactivated(terminal: Terminal) -> None:
    import_config(terminal, document())
    values = {"id": "1", "name": "Sales"}
    assert terminal.json("audit-configs", "deactivate", "1") == values | {"isActive": False}
    assert listed(terminal) == []
    assert terminal.json("audit-configs", "activate", "1") == values | {"isActive": True}
    assert len(listed(terminal)) == 1
    assert (
        terminal.run("audit-configs", "deactivate", "1").out
        == "Audit config 1 is deactivated: Sales.\n"
    )
    assert (
        terminal.run("audit-configs", "activate", "1").out == "Audit config 1 is active: Sales.\n"
    )


def test_only_unused_configurations_can_be_deleted(terminal: Terminal) -> None:
    for name in ("One", "Two", "Used"):
        import_config(terminal, document(name))
    audit(terminal, "3")
    assert terminal.json("audit-configs", "delete", "1") == {"id": "1", "deleted": True}
    assert terminal.run("audit-configs", "delete", "2").out == "Audit config 2 is deleted.\n"
    assert refused(terminal, "delete 3", 1) == (
        "Audit config with ID '3' is used by 1 audit and cannot be deleted; "
        "deactivate it instead: automation audit-configs deactivate 3."
    )
    assert [one["id"] for one in listed(terminal)] == ["3"]


def test_steps_can_be_reordered(terminal: Terminal) -> None:
    import_config(terminal, document())
    result = terminal.json("audit-configs", "reorder", "1", "3", "1", "2")
    assert [(step["id"], step["position"], step["name"]) for step in result["steps"]] == [
        ("3", 1, "Step 3"),
        ("1", 2, "Step 1"),
        ("2", 3, "Step 2"),
    ]
    assert terminal.json("audit-configs", "show", "1") == result
    table = terminal.run("audit-configs", "reorder", "1", "1", "2", "3").out.splitlines()
    assert [line.split()[-1] for line in table[-3:]] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("order", "invalid_id"), [("1 2", "3"), ("1 2 3 3", "3"), ("1 2 3 9", "9")]
)
def test_an_order_must_name_every_step_once(
    terminal: Terminal, order: str, invalid_id: str
) -> None:
    import_config(terminal, document())
    sentence = refused(terminal, f"reorder 1 {order}", 2)
    assert sentence.startswith("The new order must name every step once: stepIds: ")
    assert invalid_id in sentence.rpartition("stepIds: ")[2]


@every_case("arguments", ["import", "validate"])
@every_case(
    ("name", "content", "sentence"),
    [
        ("missing.json", None, "missing.json cannot be read: No such file or directory."),
        (".", None, ". cannot be read: Is a directory."),
        ("f.json", b"{]", "f.json is not valid JSON: "),
        ("f.json", b"[{}]", "f.json must contain a JSON object."),
        ("f.json", b"\xff", "f.json cannot be read: it is not UTF-8 text."),
        ("-", b"", "Standard input is not valid JSON: "),
        ("-", b"[]", "Standard input must contain a JSON object."),
    ],
)
def test_an_unusable_file_exits_with_2(
    terminal: Terminal, arguments: str, name: str, content: bytes | None, sentence: str
) -> None:
    if content is not None and name != "-":
        (terminal.folder / name).write_bytes(content)
    assert refused(terminal, f"{arguments} {name}", 2, content or b"").startswith(sentence)
    assert listed(terminal, "--all") == []


@pytest.mark.parametrize("output", [".", "no/such/folder.json"])
def test_an_export_that_cannot_be_written_exits_with_2(terminal: Terminal, output: str) -> None:
    import_config(terminal, document())
    assert refused(terminal, f"export 1 --output {output}", 2).startswith(
        f"{output} cannot be written: "
    )


WITH_AN_ID = ["show", "export", "activate", "deactivate", "delete", "reorder"]


@every_case("verb", WITH_AN_ID)
@every_case("flag", ["", " --json"])
def test_an_unknown_id_exits_with_1(terminal: Terminal, verb: str, flag: str) -> None:
    arguments = f"{verb} 7{' 1' if verb == 'reorder' else ''}{flag}"
    assert refused(terminal, arguments, 1) == "Audit config 7 not found."


@every_case("verb", WITH_AN_ID)
@every_case("wrong", ["one", "0", "1.5", "99999999999999999999"])
def test_an_invalid_id_exits_with_2(terminal: Terminal, verb: str, wrong: str) -> None:
    arguments = f"{verb} {wrong}{' 1' if verb == 'reorder' else ''}"
    assert refused(terminal, arguments, 2).startswith("Invalid value for 'config_id': ")


@every_case(
    ("arguments", "sentence"),
    [
        ("import", "Missing argument 'file'."),
        ("validate", "Missing argument 'file'."),
        ("reorder 1", "Missing argument 'step_ids'."),
        ("reorder 1 x", "Invalid value for 'step_ids': "),
        ("reorder 1 99999999999999999999", "Invalid value for 'step_ids': "),
        ("list --bogus", "No such option: --bogus."),
        ("bogus", "No such command 'bogus'."),
    ],
)
def test_invalid_usage_exits_with_2(terminal: Terminal, arguments: str, sentence: str) -> None:
    assert refused(terminal, arguments, 2).startswith(sentence)
