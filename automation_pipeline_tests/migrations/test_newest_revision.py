"""Expand, then contract: the newest revision leaves all that the version before it works with, or says why not."""

import ast
from pathlib import Path

import pytest

from automation_pipeline import migrations

VERSIONS = Path(migrations.__file__).parent / "versions"
TAKES_AWAY = {"drop_table", "drop_column", "drop_constraint", "rename_table"}
STRICTER = {"create_unique_constraint", "create_check_constraint", "create_foreign_key"}


def contractions(source: str) -> list[str]:
    """What the code of the version before could not work with, line by line."""
    tree = ast.parse(source)
    made = {call.args[0].value for call in calls(tree) if name(call) == "create_table" and is_text(call)}
    return [f"{call.lineno}: {name(call)}" for call in calls(tree) if takes_away(call, made)]


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def is_text(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)


def takes_away(call: ast.Call, made: set[object]) -> bool:
    """A table that the revision makes is nobody's yet."""
    given = {word.arg: word.value for word in call.keywords}
    what = name(call)
    if what in TAKES_AWAY | STRICTER:
        return True
    if what == "create_index":
        on_new = len(call.args) > 1 and isinstance(call.args[1], ast.Constant) and call.args[1].value in made
        return is_true(given.get("unique")) and not on_new
    if what == "alter_column":
        return "new_column_name" in given or "type_" in given or is_false(given.get("nullable"))
    if what == "add_column":
        return any(is_required(one) for one in call.args if isinstance(one, ast.Call))
    return what == "execute"


def is_required(column: ast.Call) -> bool:
    given = {word.arg: word.value for word in column.keywords}
    return is_false(given.get("nullable")) and "server_default" not in given


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def reason_for_contraction(source: str) -> str:
    said = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    named = {target.id: node.value for node in said for target in node.targets if isinstance(target, ast.Name)}
    value = named.get("contract")
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def test_the_newest_revision_only_adds_or_says_contract_with_the_reason() -> None:
    source = (VERSIONS / f"{migrations.revisions()[-1]}.py").read_text()
    assert contractions(source) == [] or len(reason_for_contraction(source)) >= 20


@pytest.mark.parametrize(
    "line",
    [
        'op.drop_table("t")',
        'op.drop_column("t", "c")',
        'batch.drop_constraint("u")',
        'op.rename_table("t", "u")',
        'batch.alter_column("c", new_column_name="d")',
        'batch.alter_column("c", nullable=False)',
        'batch.alter_column("c", type_=sa.Text())',
        'op.add_column("t", sa.Column("c", sa.Integer(), nullable=False))',
        'batch.add_column(sa.Column("c", sa.Integer(), nullable=False))',
        'op.create_index("i", "t", ["c"], unique=True)',
        'batch.create_check_constraint("k", "c > 0")',
        'op.execute("UPDATE t SET c = 1")',
    ],
)
def test_what_the_version_before_could_not_work_with_is_noticed(line: str) -> None:
    assert contractions(f"def upgrade():\n    {line}\n")


@pytest.mark.parametrize(
    "line",
    [
        'op.create_table("t", sa.Column("c", nullable=False)); op.create_index("i", "t", ["c"], unique=True)',
        'op.add_column("t", sa.Column("c", sa.Integer(), nullable=True))',
        'batch.add_column(sa.Column("c", sa.Boolean(), server_default=sa.false(), nullable=False))',
        'op.create_index("i", "t", ["c"])',
        'batch.alter_column("c", nullable=True)',
    ],
)
def test_what_only_adds_is_well(line: str) -> None:
    assert contractions(f"def upgrade():\n    {line}\n") == []


def test_a_reason_is_a_sentence_beside_the_revision() -> None:
    assert reason_for_contraction('contract = "Nothing has written the column since 0012."') != ""
    assert reason_for_contraction("revision = '1'") == ""
