"""Rules of ARCHITECTURE.md that a program can check. Each test lists all violations."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "automation_pipeline"
TESTS = ROOT / "automation_pipeline_tests"
MODULES = sorted(PACKAGE.rglob("*.py"))
# A migration may be as long as its tables require.
HAND_WRITTEN = [path for path in MODULES if "versions" not in path.parts]
TEST_MODULES = sorted(TESTS.rglob("*.py"))

LONGEST_FUNCTION, LONGEST_DEFINITION = 75, 25
BANNED_WORDS = {
    "utils",
    "util",
    "helper",
    "helpers",
    "common",
    "shared",
    "manager",
    "handler",
    "processor",
    "misc",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def offenders(paths: Iterable[Path], offends: Callable[[Path], object]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths if offends(path)]


def offending_lines(paths: Iterable[Path], offends: Callable[[str], object]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if offends(line)
    ]


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Function))


def length(function: Function) -> int:
    """The number of lines without imports inside the function (ADR 0025)."""
    inner = [node for node in function.body if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in inner)
    return (function.end_lineno or function.lineno) - function.lineno + 1 - imported


def test_every_module_has_a_docstring_of_at_most_seven_lines() -> None:
    def lacks_a_short_docstring(path: Path) -> bool:
        text = path.read_text()
        if path.name == "__init__.py" and not text:
            return False
        doc = ast.get_docstring(ast.parse(text))
        return not doc or len(doc.splitlines()) > 7

    assert offenders(MODULES, lacks_a_short_docstring) == []


def test_functions_are_short_and_dagster_definitions_are_shorter() -> None:
    def too_long(path: Path) -> bool:
        longest = LONGEST_DEFINITION if PACKAGE / "defs" in path.parents else LONGEST_FUNCTION
        return any(length(function) > longest for function in functions(path))

    assert offenders(HAND_WRITTEN, too_long) == []


def test_no_module_name_is_a_filler_word() -> None:
    def words(path: Path) -> set[str]:
        return {
            word
            for part in path.relative_to(ROOT).with_suffix("").parts
            for word in part.split("_")
        }

    assert offenders(MODULES, lambda path: words(path) & BANNED_WORDS) == []


def test_a_lint_exemption_states_its_reason() -> None:
    exemption = re.compile(
        r"#\s*(noqa:\s*[A-Z0-9, ]+|type:\s*ignore(\[[\w, -]+\])?|pyright:\s*ignore\S*)(?P<why>.*)"
    )

    def without_reason(line: str) -> bool:
        found = exemption.search(line)
        return found is not None and len(found["why"].strip()) < 5

    assert offending_lines(MODULES, without_reason) == []


def test_a_broad_except_states_its_reason() -> None:
    broad = re.compile(r"except(\s+(Base)?Exception\b[^#]*)?:\s*$")
    assert offending_lines([*MODULES, *TEST_MODULES], broad.search) == []


def test_metadata_of_dagster_is_created_in_one_module() -> None:
    """It makes plain values: Dagster cannot store a member of an enum, and the step would fail
    after its work."""
    makes = re.compile(r"\bMetadataValue\.[a-z]|\b[A-Z][a-z]+MetadataValue\(")
    others = [path for path in MODULES if path != PACKAGE / "orchestration" / "ops.py"]
    assert offending_lines(others, makes.search) == []


def test_private_modules_of_dagster_are_used_in_one_module() -> None:
    def names_a_private_module(line: str) -> object:
        return re.search(r"\bdagster\w*(\.\w+)*\._\w|from dagster\w*(\.\w+)* import .*\b_\w", line)

    others = [path for path in HAND_WRITTEN if path.name != "dagster_internals.py"]
    assert offending_lines(others, names_a_private_module) == []


def test_no_code_has_a_marker_of_unfinished_work() -> None:
    assert offending_lines(MODULES, re.compile(r"NotImplementedError|TODO|FIXME|XXX").search) == []


def test_only_one_module_reads_response_bodies() -> None:
    """`clients.http` reads bodies raw and bounded. Other functions of httpx decompress them, or
    read any size."""
    ways = {
        f"{way}_{what}" for way in ("iter", "aiter") for what in ("bytes", "raw", "text", "lines")
    }
    reading = {"aread"} | ways
    # Of these names other things have too: they are looked at where they belong to an answer or to
    # a client.
    unbounded = {
        "content",
        "json",
        "text",
        "read",
        "get",
        "post",
        "put",
        "patch",
        "delete",
        "request",
        "stream",
    }
    of_http = {"response", "http", "client", "httpx"}
    calls = re.compile(r"HttpClient\b|GuardedTransport\b|httpx\.(Client|Response|AsyncClient)\b")
    users = [path for path in MODULES if path.name != "http.py" and calls.search(path.read_text())]
    assert len(users) > 5

    def reads(path: Path) -> bool:
        attributes = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
        ]
        return any(
            node.attr in reading
            or (node.attr in unbounded and (ast.unparse(node.value).rpartition(".")[2] in of_http))
            or ast.unparse(node) == "httpx.AsyncClient"
            for node in attributes
        )

    assert offenders(users, reads) == []


def test_a_public_class_name_has_one_meaning() -> None:
    """Private classes may share names, and so may the simulator, which describes other systems."""
    where: dict[str, list[str]] = {}
    for path in HAND_WRITTEN:
        if "simulator" not in path.parts:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    where.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_no_file_names_a_package_index() -> None:
    index = (
        r"https?://[^ \"]*(/simple(/|\b)|/packages/[0-9a-f]{2}/|/-/[a-z0-9-]+\.tgz|/debian/pool)"
    )
    found = subprocess.run(
        ["git", "grep", "-lE", index], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


def test_the_lock_pins_everything_with_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^[a-z0-9][^\s;]*", lock, flags=re.MULTILINE)
    assert pins
    assert [pin for pin in pins if "==" not in pin] == []
    assert "://" not in lock
    assert lock.count("--hash=sha256:") >= len(pins)


def test_the_modules_and_names_that_contributing_mentions_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Where do I change X")[1]
    table = text.split("\n## ")[0]
    missing: list[str] = []
    for path, names in re.findall(r"`([\w/]+\.py)`(?: \(([^)]*)\))?", table):
        module = PACKAGE / path
        source = module.read_text() if module.exists() else ""
        wanted = re.findall(r"`(\w+)`", names)
        missing += [f"{path}: {name}" for name in wanted if not re.search(rf"\b{name}\b", source)]
        missing += [path] if not module.exists() else []
    assert missing == []
