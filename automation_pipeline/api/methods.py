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
    """The path is written out for other methods, or is a deed such as `/v1/requests/{request_id}:refresh-company`: a
    route with a parameter in its place must not answer this one."""
    written, patterns = _paths()
    if path in written:
        return method not in written[path]
    deeds = (methods for pattern, methods in patterns if ":" in pattern.pattern and pattern.fullmatch(path))
    return method not in next(deeds, (method,))


@cache
def _paths() -> tuple[Mapping[str, tuple[str, ...]], tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]]:
    methods: dict[str, list[str]] = defaultdict(list)
    for method, path in RULES:
        methods[path].append(method)
    known = {path: tuple(sorted(of_it)) for path, of_it in methods.items()}
    written = {path: of_it for path, of_it in known.items() if "{" not in path}
    in_part = sorted((path for path in known if "{" in path), key=lambda path: ":" not in path)
    patterns = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), known[path]) for path in in_part]
    return written, tuple(patterns)
