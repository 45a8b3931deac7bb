"""The part of a run's page that tells a JSON document as it stands: names, values, lists of either."""

from collections.abc import Mapping, Sequence
from typing import cast

from automation_pipeline.cli.markup import Html, element, joined

LONGEST_LIST = 100


def document_part(document: Mapping[str, object]) -> Html:
    """Nothing for an empty one; what is long in it is folded."""
    return element("ul", *(_entry(name, value) for name, value in document.items())) if document else Html()


def _entry(name: str, value: object) -> Html:
    told = _told(value)
    if isinstance(value, Mapping | list | tuple) and told:
        count = len(cast("Sequence[object]", value))
        return element("li", element("details", element("summary", _spaced(name), f" ({count})"), told))
    return element("li", _spaced(name), ": ", element("b", told or "none"))


def _told(value: object) -> Html:
    if isinstance(value, Mapping):
        return document_part(cast("Mapping[str, object]", value))
    if isinstance(value, list | tuple):
        return _listed(cast("Sequence[object]", value))
    if value is None or isinstance(value, bool):
        return joined("yes" if value else "no" if value is False else "none")
    return joined(value)


def _listed(values: Sequence[object]) -> Html:
    if not values:
        return Html()
    rest = len(values) - LONGEST_LIST
    more = element("li", f"and {rest} more", class_="soft") if rest > 0 else ""
    return element("ul", *(element("li", _told(value)) for value in values[:LONGEST_LIST]), more)


def _spaced(name: str) -> str:
    """As `failed days` for `failed_days`."""
    return name.replace("_", " ")
