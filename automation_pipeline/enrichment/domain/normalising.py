"""One spelling for what the registries spell each in their way. None: not said, or masked."""

import re
from datetime import date

MASKED = "[NON-DIFFUSIBLE]"
_NAF = re.compile(r"(\d{2})\.?(\d{2})([A-Z])")
_DATES = (
    (re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:T.*)?"), (1, 2, 3)),
    (re.compile(r"(\d{2})[/-](\d{2})[/-](\d{4})"), (3, 2, 1)),
    (re.compile(r"(\d{4})(\d{2})(\d{2})"), (1, 2, 3)),
)
_COUNTRIES = {
    "FRA": "FR", "FRANCE": "FR", "BEL": "BE", "CHE": "CH", "DEU": "DE", "ESP": "ES", "GBR": "GB", "ITA": "IT",
    "LUX": "LU", "MCO": "MC", "NLD": "NL", "PRT": "PT", "USA": "US", "AND": "AD", "AUT": "AT", "IRL": "IE",
}  # fmt: skip


def text(given: object) -> str | None:
    """Numbers are said as texts; what is empty or masked is not said."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    bare = " ".join(str(given).replace("\0", "").split())
    return bare if bare and MASKED not in bare.upper() else None


def is_masked(given: object) -> bool:
    return isinstance(given, str) and MASKED in given.upper()


def naf(given: object) -> str | None:
    """With its dot: `62.01Z`."""
    match = _NAF.fullmatch((text(given) or "").upper().replace(" ", ""))
    return f"{match[1]}.{match[2]}{match[3]}" if match else None


def country(given: object) -> str | None:
    """Two letters; a code that we do not know is not said, rather than said wrongly."""
    bare = (text(given) or "").upper()
    return bare if re.fullmatch(r"[A-Z]{2}", bare) else _COUNTRIES.get(bare)


def day(given: object) -> date | None:
    bare = text(given) or ""
    for pattern, (year, month, day_) in _DATES:
        match = pattern.fullmatch(bare)
        if match:
            try:
                return date(int(match[year]), int(match[month]), int(match[day_]))
            except ValueError:
                return None
    return None


def postal_code(given: object) -> str | None:
    """Five digits in France; a leading zero that a number has lost comes back."""
    bare = text(given)
    return bare.zfill(5) if bare and bare.isdigit() and len(bare) <= 5 else bare


def line(*parts: object) -> str | None:
    """What is said of them, in one line."""
    return " ".join(filter(None, map(text, parts))) or None
