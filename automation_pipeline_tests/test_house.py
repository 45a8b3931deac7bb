"""The habits of the house that a machine can see. Each test lists its offenders."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "automation_pipeline"
TESTS = ROOT / "automation_pipeline_tests"
MODULES = sorted(HOUSE.rglob("*.py"))
# A revision is as long as its tables.
WRITTEN = [path for path in MODULES if "versions" not in path.parts]
TEST_MODULES = sorted(TESTS.rglob("*.py"))
ROOMS = ("access", "audits", "automation", "enrichment", "fiches", "org_jobs", "pricing", "transcription")

LONGEST_FILE, LONGEST_TEST_FILE = 250, 400
LONGEST_FUNCTION, LONGEST_DEFINITION = 50, 20
BANNED_WORDS = {"utils", "util", "helper", "helpers", "common", "shared", "manager", "handler", "processor", "misc"}

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
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_a_module_opens_with_one_to_four_lines_on_what_is_in_it() -> None:
    def says_nothing_or_too_much(path: Path) -> bool:
        doc = ast.get_docstring(ast.parse(path.read_text()))
        return not doc or len(doc.splitlines()) > 5

    assert offenders(MODULES, says_nothing_or_too_much) == []


def test_a_file_holds_one_idea() -> None:
    assert offenders(WRITTEN, lambda path: len(path.read_text().splitlines()) > LONGEST_FILE) == []
    assert offenders(TEST_MODULES, lambda path: len(path.read_text().splitlines()) > LONGEST_TEST_FILE) == []


def test_a_function_fits_the_screen_and_a_dagster_function_a_glance() -> None:
    def too_long(path: Path) -> bool:
        longest = LONGEST_DEFINITION if HOUSE / "defs" in path.parents else LONGEST_FUNCTION
        return any(length(function) > longest for function in functions(path))

    assert offenders(WRITTEN, too_long) == []


def test_every_name_says_something() -> None:
    def words(path: Path) -> set[str]:
        return {word for part in path.relative_to(ROOT).with_suffix("").parts for word in part.split("_")}

    assert offenders(MODULES, lambda path: words(path) & BANNED_WORDS) == []


def test_a_stage_is_one_public_function_named_after_its_module() -> None:
    def is_something_else(path: Path) -> bool:
        top = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, Function)]
        return [name for name in top if not name.startswith("_")] != [path.stem]

    stages = [path for room in ROOMS for path in (HOUSE / room / "stages").glob("[!_]*.py")]
    assert stages
    assert offenders(stages, is_something_else) == []


def test_an_exemption_gives_its_reason_on_the_line() -> None:
    exemption = re.compile(r"#\s*(noqa:\s*[A-Z0-9, ]+|type:\s*ignore(\[[\w, -]+\])?|pyright:\s*ignore\S*)(?P<why>.*)")

    def without_reason(line: str) -> bool:
        found = exemption.search(line)
        return found is not None and len(found["why"].strip()) < 5

    assert offending_lines(MODULES, without_reason) == []


def test_a_broad_except_gives_its_reason_on_the_line() -> None:
    broad = re.compile(r"except(\s+(Base)?Exception\b[^#]*)?:\s*$")
    assert offending_lines([*MODULES, *TEST_MODULES], broad.search) == []


def test_nothing_is_left_unfinished() -> None:
    assert offending_lines(MODULES, re.compile(r"NotImplementedError|TODO|FIXME|XXX").search) == []


def test_a_test_lives_where_its_subject_lives() -> None:
    def is_homeless(path: Path) -> bool:
        folder = path.parent.relative_to(TESTS)
        ground = ROOT if folder.parts[:1] == ("benchmarks",) else HOUSE
        return folder.parts[:1] not in {(), ("e2e",), ("fakes",), ("survival",)} and not (ground / folder).is_dir()

    assert offenders(TEST_MODULES, is_homeless) == []


def test_no_file_names_a_package_index() -> None:
    index = r"https?://[^ \"]*(/simple(/|\b)|/packages/[0-9a-f]{2}/|/-/[a-z0-9-]+\.tgz|/debian/pool)"
    found = subprocess.run(["git", "grep", "-lE", index], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_the_lock_pins_everything_with_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^[a-z0-9][^\s;]*", lock, flags=re.MULTILINE)
    assert pins
    assert [pin for pin in pins if "==" not in pin] == []
    assert "://" not in lock
    assert lock.count("--hash=sha256:") >= len(pins)
