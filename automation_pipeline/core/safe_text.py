"""Text of others, made harmless for the program that shows it: spreadsheets, Markdown,
terminals."""

import re

# A cell that begins so is a formula, in some spreadsheet or other; the last four are the full-width
# forms.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_MARKUP = re.compile(r"[\\`*\[\]<>#!|~&]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=\bwww)\.|@(?=\w)")
# Control characters (C0 without the tab, DEL, C1), line separators, and those that turn the
# direction of text.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def csv_cell(value: object) -> object:
    """A text that would be a formula gets an apostrophe before it; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def markdown_cell(value: object) -> str:
    """On one line, without any markup, link or HTML of its own. `<` and `&` too are escaped by a
    backslash."""
    return _MARKUP.sub(r"\\\g<0>", visible(" ".join(str(value).split())))


def visible(text: str) -> str:
    """Control characters as their escapes, which are also those of JSON."""
    return _CONTROL.sub(lambda found: _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


_ESCAPES = {"\n": "\\n", "\r": "\\r"}
