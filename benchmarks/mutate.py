"""Mutation testing: changes one thing of the package at a time, and runs the tests that reach the
changed line.

python benchmarks/mutate.py [--seed N] [--count N] [--package NAME ...] [--seconds 240] [--jobs 1]
[--remap]

The seed draws the mutations; the packages take turns. Every mutation happens in a copy of the
working tree. With `--remap`, one run of all tests except `e2e/` under coverage first measures which
test reaches which line, and `.automation/mutate` keeps the result; later runs match their lines to
the tree that was measured. Without such a map the script runs at most forty test modules whose
imports reach the mutated module: first those that name the changed function or one that calls it,
then those whose path has the most words in common with the module's. It prints each survivor as a
diff, and the share that was caught. A mutation whose tests did not all run in time is undecided and
does not count.

These stay as they are, because no test can notice a change: texts, annotations and type aliases,
imports, decorators, asserts, blocks for type checkers and protocols, arguments of log calls, how an
option of a command is shown, and `return False` as None (it becomes `return True` instead). The packages
`simulator` and `migrations` are not mutated.
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
MOST_MODULES = 40
GOLDEN = f"{TESTS}/golden/test_golden.py"  # sees every change of the public surface
NO_END = "no end"
CHUNK = 40  # tests of one pytest run; the nearest come first, so that most mutations need one run


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
    killer: str = ""


# --- mutations -------------------------------------------------------------------------------------------------------


@dataclass
class Source:
    """A file, and where its syntax is in its text."""

    text: str
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        lines = self.text.encode().splitlines(keepends=True)
        self.starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def start(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset  # pyright: ignore[reportAttributeAccessIssue]

    def end(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset  # pyright: ignore[reportAttributeAccessIssue]

    def put(self, start: int, end: int, new: str) -> str:
        raw = self.text.encode()
        return (raw[:start] + new.encode() + raw[end:]).decode()

    def instead(self, node: ast.AST, new: str) -> str:
        return self.put(self.start(node), self.end(node), new)

    def operator(self, left: ast.AST, right: ast.AST, old: str, new: str) -> str:
        """Between two operands there may be brackets and line ends besides the operator."""
        start, end = self.end(left), self.start(right)
        between = self.text.encode()[start:end].decode()
        pattern = r"\b" + old.replace(" ", r"\s+") + r"\b" if old[0].isalpha() else re.escape(old)
        return self.put(start, end, re.sub(pattern, new, between, count=1))

    def cut(self, node: ast.AST) -> str:
        return self.text.encode()[self.start(node) : self.end(node)].decode()


def mutations_of(path: Path) -> Iterator[Mutation]:
    source = Source(path.read_text(encoding="utf-8"))
    name = path.relative_to(ROOT).as_posix()
    for node in _code(ast.parse(source.text)):
        for kind, after in _changes(source, node):
            if after != source.text:
                yield Mutation(name, node.lineno, kind, source.text, after)  # pyright: ignore[reportAttributeAccessIssue]


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when the program works: no annotations, decorators, asserts or blocks for type
    checkers."""
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom) or _is_for_type_checkers(node):
        return
    skipped = {"annotation", "returns", "decorator_list", "type_params"}
    for name, value in ast.iter_fields(node):
        if name in skipped or (
            name in {"args", "keywords"} and isinstance(node, ast.Call) and _is_declaration(node)
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                if hasattr(child, "lineno") and not _is_for_type_checkers(child):
                    yield child
                yield from _code(child)


def _is_for_type_checkers(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    return isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)


def _is_declaration(call: ast.Call) -> bool:
    """Calls whose arguments are for people: options of commands, log lines."""
    *owner, name = ast.unparse(call.func).split(".")
    is_log_call = bool(owner) and name in {"debug", "info", "warning", "error", "exception"}
    return is_log_call or name in {"Option", "Argument", "TypeVar"}


def _changes(source: Source, node: ast.AST) -> Iterator[tuple[str, str]]:  # noqa: C901  one case per kind of syntax
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield from _comparison(source, left, op, right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield "operator", source.operator(left, right, *OPERATORS[type(op)])
        case ast.BoolOp(op=op, values=[left, right, *_]):
            yield "boolean operator", source.operator(left, right, *OPERATORS[type(op)])
        case ast.Constant(value=bool(value)):
            yield "constant", source.instead(node, str(not value))
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", source.instead(node, repr(value + 1))
        case ast.Return(value=ast.expr() as value) if not (
            isinstance(value, ast.Constant) and (value.value is None or value.value is False)
        ):
            yield "return value", source.instead(value, "None")
        case ast.Expr(value=ast.Call() | ast.Await() as value):
            inner = value.value if isinstance(value, ast.Await) else value
            if not (isinstance(inner, ast.Call) and _is_declaration(inner)):
                yield "removed statement", source.instead(node, "pass")
        case ast.AugAssign() | ast.Raise() | ast.Delete():
            yield "removed statement", source.instead(node, "pass")
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield "negated condition", source.instead(test, f"(not ({source.cut(test)}))")


def _comparison(
    source: Source, left: ast.expr, op: ast.cmpop, right: ast.expr
) -> Iterator[tuple[str, str]]:
    words = {
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.Gt: ">",
        ast.GtE: ">=",
        ast.Eq: "==",
        ast.NotEq: "!=",
        ast.In: "in",
    }
    words |= {ast.NotIn: "not in"}
    if old := words.get(type(op)):
        yield "comparison", source.operator(left, right, old, COMPARISONS[old])
    elif isinstance(op, ast.Is):
        yield "comparison", source.operator(left, right, "is", "is not")
    else:
        yield "comparison", source.operator(left, right, "is not", "is")


def drawn(seed: int, count: int, packages: Sequence[str]) -> list[Mutation]:
    """The packages take turns; within a package every mutation is as likely as any other."""
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
    turns = (
        found[name][turn] for turn in range(count) for name in order if turn < len(found[name])
    )
    return [mutation for _, mutation in zip(range(count), turns, strict=False)]


# --- which tests reach a line ----------------------------------------------------------------------------------------

# This module is a pytest plugin, too (`-p mutate`): it measures every test function as a context of
# its own.
_measured: list[coverage.Coverage] = []


def pytest_configure(config: pytest.Config) -> None:
    if "MUTATE_MAP" in os.environ and (
        "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", 0)
    ):
        coverage_ = coverage.Coverage(
            data_file=os.environ["MUTATE_MAP"],
            data_suffix=True,
            source_pkgs=[PACKAGE],
            config_file=False,
            messages=False,
        )
        coverage_.set_option("run:disable_warnings", ["module-not-measured"])
        coverage_.start()
        _measured.append(coverage_)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for one in _measured:
        one.switch_context(item.nodeid.partition("[")[0])


def pytest_unconfigure() -> None:
    for one in _measured:
        one.stop()
        one.save()
    _measured.clear()


def measure(jobs: int) -> None:
    shutil.rmtree(MAP, ignore_errors=True)
    tree = copied(MAP / "tree")
    sys.stderr.write("Measuring which tests reach which lines: one run of all tests except e2e/.\n")
    environment = {**surroundings(tree), "MUTATE_MAP": str(MAP / "coverage")}
    words = [
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
    subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tree, env=environment, check=False)
    combined = coverage.Coverage(data_file=MAP / "coverage", config_file=False)
    combined.combine([str(MAP)])
    combined.save()


@cache
def reached() -> coverage.CoverageData:
    data = coverage.CoverageData(str(MAP / "coverage"))
    data.read()
    return data


def tests_for(mutation: Mutation) -> list[str]:
    """The tests that reach the line, nearest first. A line that runs at import is reached by all
    tests of its file."""
    old = MAP / "tree" / mutation.path
    if not old.exists() or not (MAP / "coverage").exists():
        return neighbours(mutation)
    contexts = reached().contexts_by_lineno(str(old))
    line = _line_before(old.read_text(encoding="utf-8"), mutation)
    found = set(contexts.get(line, ())) - {""} or {
        test for tests in contexts.values() for test in tests if test
    }
    if not found:
        return neighbours(mutation)
    places = Path(mutation.path).parts[1:]
    return sorted(
        filter(exists, found), key=lambda test: (-_nearness(test, places), len(test), test)
    )


def _line_before(old: str, mutation: Mutation) -> int:
    """The line as it was numbered when the map was made."""
    matcher = difflib.SequenceMatcher(
        None, old.splitlines(), mutation.before.splitlines(), autojunk=False
    )
    for block in matcher.get_matching_blocks():
        if block.b <= mutation.line - 1 < block.b + block.size:
            return mutation.line - block.b + block.a
    return mutation.line


def _nearness(test: str, places: Sequence[str]) -> int:
    parts = Path(test.partition("::")[0]).parts[1:]
    same = next(
        (
            number
            for number, (one, other) in enumerate(zip(parts, places, strict=False))
            if one != other
        ),
        len(places),
    )
    return 2 * same + (Path(places[-1]).stem in parts[-1])


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return (ROOT / path).exists() and f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text(
        encoding="utf-8"
    )


def neighbours(mutation: Mutation) -> list[str]:
    """Without a map: the test modules whose imports reach the mutated module. Those that name what
    changed come first, then those with a similar path, then those with fewer imports in between."""
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
        _words(mutation.path),
    )

    method = re.compile(rf"\b{_method(mutation)}\b")

    def rank(test: str) -> tuple[bool, bool, int, int, str]:
        text = (ROOT / test).read_text(encoding="utf-8")
        is_named = not method.search(text), not named.search(text)
        return *is_named, -len(words & _words(test)), distances[test], test

    nearest = sorted(tests, key=rank)[:MOST_MODULES]
    return [
        *nearest[:3],
        *({GOLDEN} & distances.keys()),
        *(one for one in nearest[3:] if one != GOLDEN),
    ]


def affected_names(mutation: Mutation) -> list[str]:
    """The top-level names of the module that hold the changed line or use one that does."""
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


def _method(mutation: Mutation) -> str:
    """The public method that holds the changed line, if it is in one."""
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


def _words(path: str) -> set[str]:
    """The words of a path in the singular; tests of commands lie under `cli`."""
    parts = re.findall(r"[a-z0-9]+", path.removesuffix(".py"))[2:]
    words = {re.sub(r"ies$", "y", part).removesuffix("s") for part in parts} - {"test", "pipeline"}
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
    return {path.relative_to(ROOT).as_posix(): set(_imported(path, known)) for path in files}


def _imported(path: Path, known: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            module = node.value.removeprefix(f"{PACKAGE}.")
            if found := known.get(f"{PACKAGE}.{module}"):  # imported by its name when it is used
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


def copied(to: Path) -> Path:
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


def surroundings(tree: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'benchmarks'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run_tests(tree: Path, tests: Sequence[str], seconds: float) -> tuple[bool, str]:
    """Whether a test failed (or did not end), and which."""
    words = [
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
        [sys.executable, "-m", "pytest", *words], cwd=tree, env=surroundings(tree), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False, NO_END
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
            failed, killer = run_tests(tree, chunk, seconds)
            if failed and not fails_anyway(clean, killer, seconds):
                outcome.verdict, outcome.killer = "caught", killer
                break
            if killer == NO_END or (
                time.monotonic() - started_at > seconds and outcome.tests < len(tests)
            ):
                outcome.verdict = "undecided"
                break
    finally:
        (tree / mutation.path).write_text(mutation.before, encoding="utf-8")
        trees.put(tree)
    outcome.seconds = time.monotonic() - started_at
    return outcome


def fails_anyway(clean: Path, killer: str, seconds: float) -> bool:
    """Whether the test fails without the mutation too. The whole function runs where the summary
    cuts an id short."""
    if "::" not in killer:
        return False
    test = killer if killer.endswith("]") else killer.partition("[")[0]
    return run_tests(clean, [test], seconds)[0]


def chunks(tests: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Parts of growing size: most mutations are noticed by the nearest tests."""
    start, size = 0, CHUNK if "::" in "".join(tests[:1]) else 3
    while start < len(tests):
        yield start, tests[start : start + size]
        start, size = start + size, size * 3


def main() -> None:
    options = parse()
    if options.remap:
        measure(options.jobs)
    mutations = drawn(options.seed, options.count, options.package)
    trees: SimpleQueue[Path] = SimpleQueue()
    with TemporaryDirectory(prefix="mutate-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            trees.put(copied(Path(folder) / str(number)))
        clean = copied(Path(folder) / "clean")
        judged = partial(judge, trees=trees, clean=clean, seconds=options.seconds)
        outcomes = [report(outcome) for outcome in pool.map(judged, mutations)]
    caught = sum(one.verdict == "caught" for one in outcomes)
    undecided = sum(one.verdict == "undecided" for one in outcomes)
    share = f"{100 * caught / max(1, len(outcomes) - undecided):.0f} %"
    print(
        f"caught {caught} of {len(outcomes)}, {undecided} undecided for want of time: {share}, seed {options.seed}"
    )


def report(outcome: Outcome) -> Outcome:
    one = outcome.mutation
    detail = f"{outcome.tests} tests, {outcome.seconds:.0f} s {outcome.killer}"
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
        "--seconds", type=float, default=240, help="the most that one mutation may take"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time")
    parser.add_argument(
        "--remap", action="store_true", help="measure again which tests reach which lines"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
