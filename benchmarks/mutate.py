"""Mutation testing: makes one small change to the package at a time, and runs the tests that execute
the changed line.

python benchmarks/mutate.py [--seed N] [--count N] [--package NAME ...] [--seconds 240] [--jobs 1]
[--remap]

The seed determines the mutations, which are distributed evenly over the packages. Each mutation is
applied to a copy of the working tree. With `--remap`, the script first runs all tests except `e2e/`
under coverage to measure which test executes which line, and stores the result in
`.automation/mutate`. Later runs map their lines to the measured tree. Without a stored result, the
script runs at most forty test modules that import the mutated module, directly or indirectly: first
those that name the changed function or a function that uses it, then those with the most similar path.
It prints each mutation that no test caught as a diff, and the share of caught mutations. A mutation is
undecided, and does not count, if its tests did not finish in time.

The script does not mutate code whose change no test can notice: texts, annotations and type aliases,
imports, decorators, asserts, blocks for type checkers, protocols, arguments of log calls, and the
declarations of command options. It does not replace `return False` by `return None`. It skips the packages
`simulator` and `migrations`.
"""

import argparse
import ast
import contextlib
import difflib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, TESTS = "automation_pipeline", "automation_pipeline_tests"
MAP = ROOT / ".automation" / "mutate"
NOT_MUTATED = {"simulator", "migrations"}
COMPARISONS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "in": "not in",
    "not in": "in",
}
OPERATORS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
OPERATORS |= {
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
MAX_MODULES = 40
GOLDEN = f"{TESTS}/golden/test_golden.py"  # notices every change of the public surface
TIMED_OUT = "timed out"
# The number of tests in one pytest run. The most relevant tests run first, so most mutations need one run.
CHUNK_SIZE = 40


@dataclass(frozen=True)
class Mutation:
    path: str
    line: int
    kind: str
    before: str
    after: str

    @property
    def package(self) -> str:
        return self.path.split("/")[1].removesuffix(".py")

    def diff(self) -> str:
        sources = (self.before.splitlines(), self.after.splitlines())
        return "\n".join(
            difflib.unified_diff(
                *sources, self.path, f"{self.path} ({self.kind})", lineterm="", n=2
            )
        )


@dataclass
class Outcome:
    mutation: Mutation
    verdict: str = "not reached"
    tests: int = 0
    seconds: float = 0.0
    failed_test: str = ""


# --- mutations -------------------------------------------------------------------------------------------------------


@dataclass
class Source:
    """The text of a file, with functions that replace the text of a syntax node."""

    text: str
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        lines = self.text.encode().splitlines(keepends=True)
        self.starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def start(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset  # pyright: ignore[reportAttributeAccessIssue]

    def end(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset  # pyright: ignore[reportAttributeAccessIssue]

    def replace_range(self, start: int, end: int, new: str) -> str:
        raw = self.text.encode()
        return (raw[:start] + new.encode() + raw[end:]).decode()

    def replace_node(self, node: ast.AST, new: str) -> str:
        return self.replace_range(self.start(node), self.end(node), new)

    def operator(self, left: ast.AST, right: ast.AST, old: str, new: str) -> str:
        """Replace an operator. The text between its operands may also contain brackets and line ends."""
        start, end = self.end(left), self.start(right)
        between = self.text.encode()[start:end].decode()
        pattern = r"\b" + old.replace(" ", r"\s+") + r"\b" if old[0].isalpha() else re.escape(old)
        return self.replace_range(start, end, re.sub(pattern, new, between, count=1))

    def text_of(self, node: ast.AST) -> str:
        return self.text.encode()[self.start(node) : self.end(node)].decode()


def mutations_of(path: Path) -> Iterator[Mutation]:
    source = Source(path.read_text(encoding="utf-8"))
    name = path.relative_to(ROOT).as_posix()
    for node in executed_nodes(ast.parse(source.text)):
        for kind, after in changes_of(source, node):
            if after != source.text:
                yield Mutation(name, node.lineno, kind, source.text, after)  # pyright: ignore[reportAttributeAccessIssue]


def executed_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are executed, without annotations, decorators, asserts and blocks for type
    checkers."""
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom) or is_for_type_checkers(node):
        return
    skipped = {"annotation", "returns", "decorator_list", "type_params"}
    for name, value in ast.iter_fields(node):
        if name in skipped or (
            name in {"args", "keywords"} and isinstance(node, ast.Call) and is_declaration(node)
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                if hasattr(child, "lineno") and not is_for_type_checkers(child):
                    yield child
                yield from executed_nodes(child)


def is_for_type_checkers(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    return isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)


def is_declaration(call: ast.Call) -> bool:
    """Whether the arguments of the call are only shown to people: options of commands, log lines."""
    *owner, name = ast.unparse(call.func).split(".")
    is_log_call = bool(owner) and name in {"debug", "info", "warning", "error", "exception"}
    return is_log_call or name in {"Option", "Argument", "TypeVar"}


def changes_of(source: Source, node: ast.AST) -> Iterator[tuple[str, str]]:  # noqa: C901  one case per kind of syntax
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield from comparison_changes(source, left, op, right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield "operator", source.operator(left, right, *OPERATORS[type(op)])
        case ast.BoolOp(op=op, values=[left, right, *_]):
            yield "boolean operator", source.operator(left, right, *OPERATORS[type(op)])
        case ast.Constant(value=bool(value)):
            yield "constant", source.replace_node(node, str(not value))
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", source.replace_node(node, repr(value + 1))
        case ast.Return(value=ast.expr() as value) if not (
            isinstance(value, ast.Constant) and (value.value is None or value.value is False)
        ):
            yield "return value", source.replace_node(value, "None")
        case ast.Expr(value=ast.Call() | ast.Await() as value):
            inner = value.value if isinstance(value, ast.Await) else value
            if not (isinstance(inner, ast.Call) and is_declaration(inner)):
                yield "removed statement", source.replace_node(node, "pass")
        case ast.AugAssign() | ast.Raise() | ast.Delete():
            yield "removed statement", source.replace_node(node, "pass")
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield "negated condition", source.replace_node(test, f"(not ({source.text_of(test)}))")


def comparison_changes(
    source: Source, left: ast.expr, op: ast.cmpop, right: ast.expr
) -> Iterator[tuple[str, str]]:
    symbols = {
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.Gt: ">",
        ast.GtE: ">=",
        ast.Eq: "==",
        ast.NotEq: "!=",
        ast.In: "in",
    }
    symbols |= {ast.NotIn: "not in"}
    if old := symbols.get(type(op)):
        yield "comparison", source.operator(left, right, old, COMPARISONS[old])
    elif isinstance(op, ast.Is):
        yield "comparison", source.operator(left, right, "is", "is not")
    else:
        yield "comparison", source.operator(left, right, "is not", "is")


def draw(seed: int, count: int, packages: Sequence[str]) -> list[Mutation]:
    """Draw mutations at random, in turn from each package."""
    rng = random.Random(seed)
    found: dict[str, list[Mutation]] = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        for mutation in mutations_of(path):
            if mutation.package not in NOT_MUTATED and (
                not packages or mutation.package in packages
            ):
                found.setdefault(mutation.package, []).append(mutation)
    order = sorted(found)
    rng.shuffle(order)
    for mutations in found.values():
        rng.shuffle(mutations)
    in_turn = (
        found[name][turn] for turn in range(count) for name in order if turn < len(found[name])
    )
    return [mutation for _, mutation in zip(range(count), in_turn, strict=False)]


# --- which tests execute a line --------------------------------------------------------------------------------------

# This module is also a pytest plugin (`-p mutate`), which records each test function as a separate coverage
# context.
_collectors: list[coverage.Coverage] = []


def pytest_configure(config: pytest.Config) -> None:
    if "MUTATE_MAP" in os.environ and (
        "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", 0)
    ):
        collector = coverage.Coverage(
            data_file=os.environ["MUTATE_MAP"],
            data_suffix=True,
            source_pkgs=[PACKAGE],
            config_file=False,
            messages=False,
        )
        collector.set_option("run:disable_warnings", ["module-not-measured"])
        collector.start()
        _collectors.append(collector)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for one in _collectors:
        one.switch_context(item.nodeid.partition("[")[0])


def pytest_unconfigure() -> None:
    for one in _collectors:
        one.stop()
        one.save()
    _collectors.clear()


def measure(jobs: int) -> None:
    shutil.rmtree(MAP, ignore_errors=True)
    tree = copy_tree(MAP / "tree")
    sys.stderr.write(
        "Measuring which tests execute which lines: one run of all tests except e2e/.\n"
    )
    environment = {**test_environment(tree), "MUTATE_MAP": str(MAP / "coverage")}
    arguments = [
        "-p",
        "mutate",
        "-q",
        "-n",
        str(jobs),
        "--ignore",
        f"{TESTS}/e2e",
        "--timeout",
        "900",
        TESTS,
    ]
    subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=tree, env=environment, check=False
    )
    combined = coverage.Coverage(data_file=MAP / "coverage", config_file=False)
    combined.combine([str(MAP)])
    combined.save()


@cache
def coverage_data() -> coverage.CoverageData:
    data = coverage.CoverageData(str(MAP / "coverage"))
    data.read()
    return data


def tests_for(mutation: Mutation) -> list[str]:
    """The tests that execute the line, those with the most similar path first. For a line that runs at
    import, all tests that execute any line of its file."""
    old = MAP / "tree" / mutation.path
    if not old.exists() or not (MAP / "coverage").exists():
        return tests_by_imports(mutation)
    contexts = coverage_data().contexts_by_lineno(str(old))
    line = measured_line(old.read_text(encoding="utf-8"), mutation)
    found = set(contexts.get(line, ())) - {""} or {
        test for tests in contexts.values() for test in tests if test
    }
    if not found:
        return tests_by_imports(mutation)
    module_parts = Path(mutation.path).parts[1:]
    return sorted(
        filter(test_exists, found),
        key=lambda test: (-path_similarity(test, module_parts), len(test), test),
    )


def measured_line(old: str, mutation: Mutation) -> int:
    """The number of the line in the tree that was measured."""
    matcher = difflib.SequenceMatcher(
        None, old.splitlines(), mutation.before.splitlines(), autojunk=False
    )
    for block in matcher.get_matching_blocks():
        if block.b <= mutation.line - 1 < block.b + block.size:
            return mutation.line - block.b + block.a
    return mutation.line


def path_similarity(test: str, module_parts: Sequence[str]) -> int:
    parts = Path(test.partition("::")[0]).parts[1:]
    same = next(
        (
            number
            for number, (one, other) in enumerate(zip(parts, module_parts, strict=False))
            if one != other
        ),
        len(module_parts),
    )
    return 2 * same + (Path(module_parts[-1]).stem in parts[-1])


def test_exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return (ROOT / path).exists() and f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text(
        encoding="utf-8"
    )


def tests_by_imports(mutation: Mutation) -> list[str]:
    """The test modules that import the mutated module, directly or indirectly. Those that name the
    changed code come first, then those with a similar path, then those with a shorter chain of imports."""
    distances, layer, steps = {mutation.path: 0}, {mutation.path}, 0
    while layer:
        steps += 1
        layer = {path for path, used in imports().items() if path not in distances and used & layer}
        distances |= dict.fromkeys(layer, steps)
    tests = [
        path for path in distances if Path(path).name.startswith("test_") and "/e2e/" not in path
    ]
    named, words = (
        re.compile(rf"\b(?:{'|'.join(affected_names(mutation))})\b"),
        path_words(mutation.path),
    )

    method = re.compile(rf"\b{public_method(mutation)}\b")

    def sort_key(test: str) -> tuple[bool, bool, int, int, str]:
        text = (ROOT / test).read_text(encoding="utf-8")
        is_named = not method.search(text), not named.search(text)
        return *is_named, -len(words & path_words(test)), distances[test], test

    nearest = sorted(tests, key=sort_key)[:MAX_MODULES]
    return [
        *nearest[:3],
        *({GOLDEN} & distances.keys()),
        *(one for one in nearest[3:] if one != GOLDEN),
    ]


def affected_names(mutation: Mutation) -> list[str]:
    """The top-level names of the module that contain the changed line, or use such a name."""
    uses: dict[str, set[str]] = {}
    changed = set[str]()
    for node in ast.parse(mutation.before).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        own = {getattr(node, "name", None), *(getattr(one, "id", None) for one in targets)} - {None}
        used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        uses |= {str(name): uses.get(str(name), set()) | used for name in own}
        if node.lineno <= mutation.line <= (node.end_lineno or node.lineno):
            changed |= {str(name) for name in own}
    while more := {name for name, used in uses.items() if used & changed} - changed:
        changed |= more
    return sorted(changed) or ["(?!)"]


def public_method(mutation: Mutation) -> str:
    """The public method that contains the changed line, if any."""
    classes = (one for one in ast.parse(mutation.before).body if isinstance(one, ast.ClassDef))
    methods = (
        one
        for node in classes
        for one in node.body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    holders = (
        one.name for one in methods if one.lineno <= mutation.line <= (one.end_lineno or one.lineno)
    )
    return next((name for name in holders if not name.startswith("_")), "(?!)")


def path_words(path: str) -> set[str]:
    """The words of a path in the singular. Tests of commands are in the folder `cli`."""
    parts = re.findall(r"[a-z0-9]+", path.removesuffix(".py"))[2:]
    words = {re.sub(r"ies$", "y", part).removesuffix("s") for part in parts} - {
        "test",
        "pipeline",
    }
    return words | {"cli" for word in words & {"command"}}


@cache
def imports() -> dict[str, set[str]]:
    """The files that each file imports."""
    files = [path for folder in (PACKAGE, TESTS) for path in (ROOT / folder).rglob("*.py")]
    names = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path for path in files
    }
    known = {
        name.removesuffix(".__init__"): path.relative_to(ROOT).as_posix()
        for name, path in names.items()
    }
    return {path.relative_to(ROOT).as_posix(): set(imported_files(path, known)) for path in files}


def imported_files(path: Path, known: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            module = node.value.removeprefix(f"{PACKAGE}.")
            # A module that is imported dynamically, by its name.
            if found := known.get(f"{PACKAGE}.{module}"):
                yield found
        named = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import | ast.ImportFrom)
            else []
        )
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for name in {*(module + one for one in named), module.rstrip(".")}:
            if name in known:
                yield known[name]


# --- running ---------------------------------------------------------------------------------------------------------


def copy_tree(to: Path) -> Path:
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def test_environment(tree: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'benchmarks'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run_tests(tree: Path, tests: Sequence[str], seconds: float) -> tuple[bool, str]:
    """Run the tests. Returns whether one failed, and its id, or else pytest's last line or TIMED_OUT."""
    arguments = [
        "-x",
        "-q",
        "-n",
        "0",
        "-rf",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "--timeout",
        str(int(seconds / 2)),
        *tests,
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=tree,
        env=test_environment(tree),
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False, TIMED_OUT
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", out, re.MULTILINE)
    last = out.strip().rpartition("\n")[2]
    return process.returncode in {1, 2, 3, 4}, failed[1] if failed else last


def judge(mutation: Mutation, trees: SimpleQueue[Path], clean: Path, seconds: float) -> Outcome:
    tests, started_at, outcome = tests_for(mutation), time.monotonic(), Outcome(mutation)
    tree = trees.get()
    (tree / mutation.path).write_text(mutation.after, encoding="utf-8")
    try:
        for start, chunk in chunks(tests):
            outcome.verdict, outcome.tests = "survived", start + len(chunk)
            failed, failed_test = run_tests(tree, chunk, seconds)
            if failed and not fails_without_mutation(clean, failed_test, seconds):
                outcome.verdict, outcome.failed_test = "caught", failed_test
                break
            if failed_test == TIMED_OUT or (
                time.monotonic() - started_at > seconds and outcome.tests < len(tests)
            ):
                outcome.verdict = "undecided"
                break
    finally:
        (tree / mutation.path).write_text(mutation.before, encoding="utf-8")
        trees.put(tree)
    outcome.seconds = time.monotonic() - started_at
    return outcome


def fails_without_mutation(clean: Path, failed_test: str, seconds: float) -> bool:
    """Whether the test also fails without the mutation. Pytest's summary truncates long ids: for those, all
    cases of the test function run."""
    if "::" not in failed_test:
        return False
    test = failed_test if failed_test.endswith("]") else failed_test.partition("[")[0]
    return run_tests(clean, [test], seconds)[0]


def chunks(tests: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Split the tests into chunks of growing size, because the first tests catch most mutations."""
    start, size = 0, CHUNK_SIZE if "::" in "".join(tests[:1]) else 3
    while start < len(tests):
        yield start, tests[start : start + size]
        start, size = start + size, size * 3


def main() -> None:
    options = parse()
    if options.remap:
        measure(options.jobs)
    mutations = draw(options.seed, options.count, options.package)
    trees: SimpleQueue[Path] = SimpleQueue()
    with TemporaryDirectory(prefix="mutate-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            trees.put(copy_tree(Path(folder) / str(number)))
        clean = copy_tree(Path(folder) / "clean")
        judged = partial(judge, trees=trees, clean=clean, seconds=options.seconds)
        outcomes = [report(outcome) for outcome in pool.map(judged, mutations)]
    caught = sum(one.verdict == "caught" for one in outcomes)
    undecided = sum(one.verdict == "undecided" for one in outcomes)
    share = f"{100 * caught / max(1, len(outcomes) - undecided):.0f} %"
    print(
        f"caught {caught} of {len(outcomes)}, {undecided} undecided because of the time limit: {share}, "
        f"seed {options.seed}"
    )


def report(outcome: Outcome) -> Outcome:
    one = outcome.mutation
    detail = f"{outcome.tests} tests, {outcome.seconds:.0f} s {outcome.failed_test}"
    print(f"{outcome.verdict:12} {one.path}:{one.line} {one.kind} ({detail})", flush=True)
    if outcome.verdict != "caught":
        print(one.diff(), flush=True)
    return outcome


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--package", nargs="*", default=[], help="only these packages")
    parser.add_argument(
        "--seconds", type=float, default=240, help="the time limit for one mutation"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time")
    parser.add_argument(
        "--remap", action="store_true", help="measure again which tests execute which lines"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
