"""One spelling for what the registries spell each in their way. None: not said, or masked."""

import re
import unicodedata
from datetime import date

from automation_pipeline.enrichment.domain.countries import BY_NAME, BY_THREE_LETTERS, OVERSEAS, TWO_LETTERS

MASKED = "[NON-DIFFUSIBLE]"
_NAF = re.compile(r"(\d{2})\.?(\d{2})([A-Z])")
_DATES = (
    (re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:T.*)?"), (1, 2, 3)),
    (re.compile(r"(\d{2})[/-](\d{2})[/-](\d{4})"), (3, 2, 1)),
    (re.compile(r"(\d{4})(\d{2})(\d{2})"), (1, 2, 3)),
)


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
    """Two letters, of a code or of INSEE's name; what we do not know is not said, rather than said wrongly."""
    apart = unicodedata.normalize("NFKD", text(given) or "").upper()
    bare = " ".join(re.findall("[A-Z0-9]+", "".join(sign for sign in apart if not unicodedata.combining(sign))))
    code = bare if bare in TWO_LETTERS else BY_THREE_LETTERS.get(bare) or BY_NAME.get(bare)
    return "FR" if code in OVERSEAS else code


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


def postal_code(given: object, country_said: object = None) -> str | None:
    """Five digits in France, where a leading zero that a number has lost comes back; abroad as it is said."""
    bare = text(given)
    is_french = text(country_said) is None or country(country_said) == "FR"
    return f"0{bare}" if bare and is_french and re.fullmatch("[0-9]{4}", bare) else bare


def line(*parts: object) -> str | None:
    """What is said of them, in one line."""
    return " ".join(filter(None, map(text, parts))) or None
