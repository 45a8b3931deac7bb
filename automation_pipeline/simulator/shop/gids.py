"""Global ids, such as gid://shopify/Product/45, and the cursors of pages."""

import base64
import binascii
import re

PRODUCT, VARIANT = "Product", "ProductVariant"
_GID = re.compile(r"gid://shopify/([A-Za-z]{1,60})/([0-9]{1,18})(\?.*)?")


class NoGidError(ValueError):
    """The text is not a global id."""


def gid(kind: str, number: int) -> str:
    return f"gid://shopify/{kind}/{number}"


def parts_of(text: str) -> tuple[str, int]:
    """The kind and the number."""
    found = _GID.fullmatch(text)
    if found is None:
        raise NoGidError(f"Invalid global id '{text[:100]}'")
    return found[1], int(found[2])


def number_of(text: str, kind: str) -> int | None:
    """None for what is of another kind."""
    is_of, number = parts_of(text)
    return number if is_of == kind else None


def cursor(number: int) -> str:
    return base64.urlsafe_b64encode(f"after:{number}".encode()).decode()


def number_behind(cursor: str) -> int | None:
    try:
        word, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
    except (ValueError, binascii.Error):
        return None
    return (
        int(number)
        if word == "after" and number.isascii() and number.isdecimal() and len(number) < 20
        else None
    )
