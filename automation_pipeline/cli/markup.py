"""HTML put together so that text cannot become markup: every string is escaped unless it is `Html`."""

import html
import re

# Allowed in no document, and shown by no reader.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_VOID = frozenset({"meta"})


class Html(str):
    """Markup that is ready."""

    __slots__ = ()


Part = object


def text(part: Part) -> Html:
    """None is nothing."""
    if isinstance(part, Html):
        return part
    return Html("" if part is None else html.escape(_UNPRINTABLE.sub("\ufffd", str(part))))


def joined(*parts: Part) -> Html:
    return Html("".join(map(text, parts)))


def element(name: str, /, *parts: Part, **attributes: str) -> Html:
    """`class_` is the attribute of that name, `http_equiv` has its hyphen."""
    told = "".join(f' {key.strip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items())
    opening = f"<{name}{told}>"
    return Html(opening if name in _VOID else f"{opening}{joined(*parts)}</{name}>")
