"""What sources answered, as it is kept: each version once, told apart by its checksum."""

import hashlib
import json
from collections.abc import Mapping
from typing import cast

# They change from call to call, though nothing of the company has.
VOLATILE = frozenset({"score", "date_mise_a_jour", "meta", "links"})


def canonical(document: Mapping[str, object]) -> str:
    return json.dumps(_without_volatile(document), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def checksum(document: Mapping[str, object]) -> str:
    return hashlib.sha256(canonical(document).encode("utf-8", "surrogatepass")).hexdigest()


def _without_volatile(value: object) -> object:
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {key: _without_volatile(inner) for key, inner in entries if key not in VOLATILE}
    if isinstance(value, list | tuple):
        return [_without_volatile(inner) for inner in cast("list[object]", value)]
    return value
