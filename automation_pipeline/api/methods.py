"""Which methods a path knows: what a 405 lists, also where several routes share the path."""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from automation_pipeline.api.rules import RULES


def allowed_methods(path: str) -> tuple[str, ...]:
    """A path that is written out is itself, never one with a parameter; () for one that nobody knows."""
    written, patterns = _paths()
    if path in written:
        return written[path]
    return next((methods for pattern, methods in patterns if pattern.fullmatch(path)), ())


def is_shadowed(path: str, method: str) -> bool:
    """The path is written out for other methods: a route with a parameter must not answer this one."""
    written, _ = _paths()
    return path in written and method not in written[path]


@cache
def _paths() -> tuple[Mapping[str, tuple[str, ...]], tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]]:
    methods: dict[str, list[str]] = defaultdict(list)
    for method, path in RULES:
        methods[path].append(method)
    known = {path: tuple(sorted(of_it)) for path, of_it in methods.items()}
    written = {path: of_it for path, of_it in known.items() if "{" not in path}
    patterns = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), of_it) for path, of_it in known.items() if "{" in path]
    return written, tuple(patterns)
