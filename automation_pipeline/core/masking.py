"""Makes text safe to store: masks secrets and personal data, escapes markup and control characters."""

import re
from collections.abc import Iterable, Mapping, Set
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from itertools import islice
from math import isfinite
from typing import cast

_WORD = re.compile(r"[A-Z]+(?![a-zà-ÿ])|[A-Z]?[a-zà-ÿ]+|[A-Z]+|\d+")

_SECRET = frozenset(
    {
        "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "csrf", "jwt", "mdp", "pass",
        "passphrase", "passwd", "password", "passwords", "pwd", "secret", "secrets", "signature", "token", "tokens",
    }
)  # fmt: skip
_SECRET_KEYS = (
    "accesskey", "apikey", "authkey", "encryptionkey", "motdepasse", "privatekey", "sessionid", "signingkey",
)  # fmt: skip
_PERSONAL = frozenset(
    {
        "adresse", "adresses", "birthdate", "carte", "cartes", "courriel", "courriels", "email", "emails", "firstname",
        "fullname", "gsm", "iban", "lastname", "naissance", "nir", "phone", "phones", "prenom", "prenoms", "prénom",
        "prénoms", "rib", "secu", "surname", "tel", "telephone", "telephones", "téléphone", "téléphones", "username",
    }
)  # fmt: skip
# Personal alone, but not as part of a longer name: `agence_nom` is the name of an agency.
_PERSONAL_ALONE = frozenset({"mail", "mails", "mobile", "nom", "portable", "auth"})
_NAME = frozenset({"nom", "noms", "name", "names"})
_PERSONS = frozenset(
    {
        "assure", "client", "conjoint", "contact", "customer", "famille", "family", "first", "full", "jeune", "last",
        "maiden", "middle", "person", "personne", "prospect", "user", "utilisateur",
    }
)  # fmt: skip
_COUNTER = frozenset(
    {
        "accepted", "audio", "average", "avg", "budget", "cached", "completion", "count", "counts", "cut", "estimated",
        "failed", "input", "left", "length", "limit", "limits", "max", "maximum", "mean", "min", "minimum",
        "output", "prediction", "prompt", "reasoning", "rejected", "remaining", "sent", "size", "sum", "tokens",
        "total", "totals", "usage", "used",
    }
)  # fmt: skip
# Attributes of a token, which are not the token.
_ABOUT_A_TOKEN = frozenset({"expires", "ttl", "type"})


def is_sensitive(key: str) -> bool:
    """Whether the value under this key is secret or personal. Numbers under the name of a counter are
    neither (`is_counter`)."""
    named = set(words_of(key))
    if named & _SECRET:
        return is_secret(key)
    return bool(
        is_secret(key)
        or named & _PERSONAL
        or "".join(words_of(key)) in _PERSONAL_ALONE
        or (named & _NAME and named & _PERSONS)
    )


def is_secret(key: str) -> bool:
    """Whether the value under this key gives access to something."""
    words = words_of(key)
    if not _SECRET.isdisjoint(words):
        return _ABOUT_A_TOKEN.isdisjoint(words)
    joined = "".join(words)
    return any(kind in joined for kind in _SECRET_KEYS)


def is_counter(key: str) -> bool:
    return not _COUNTER.isdisjoint(words_of(key))


@lru_cache(maxsize=4096)
def words_of(key: str) -> tuple[str, ...]:
    """`prospectNom`, `prospect_nom` and `Prospect-Nom` are two words each."""
    return tuple(word.lower() for word in _WORD.findall(key))


MASK = "[masked]"

_HEADER = re.compile(
    r"(?i)(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie)([\"']?\s*[:=]\s*+[\"']?+)(?!\[masked\])"
    r"(?:[^\r\n\"'\\]|\\[^\r\n])+"
)
_BEARER = re.compile(r"(?i)((?:\bbearer\s+)+)[^\s\"',;\[\]]+")
# Tokens of this system, JWTs and keys of providers, by their shape. The prefix of a token, which
# lists of tokens show, is not secret.
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:apt_[\w-]{12,}|eyJ[\w-]{8,}(?:\.[\w-]+){0,4}|sk[-_][\w-]{12,}|whsec_[\w+/-]{8,}={0,2})"
)
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,30}://)(?!\[masked\]@)[^\s/?#\"'<>]*@")
# Also matches URLs without a query. Otherwise the search would start again inside of each of many
# adjacent URLs, in quadratic time.
_QUERY = re.compile(
    r"(?i)\b((?:https?|wss?)://[^\s?#\"'<>]*+)(?P<query>\?(?!\[masked\])[^\s#\"'<>]+)?",
)
_LABEL = re.compile(
    r"(?<![\w-])((?i:mot de passe|api key(?: provided)?)|[A-Za-z][\w-]{0,100}+)\\?[\"']?\s{0,3}[:=]\s{0,3}\\?"
)
# An escaped quote is part of the value. In JSON inside of JSON, the quotes around the value are
# escaped once.
_LABELLED = re.compile(
    r"(?<!\\)\"(?:[^\"\\\r\n]|\\[^\r\n])+\"?|(?<!\\)'(?:[^'\\\r\n]|\\[^\r\n])+'?"
    r"|\"(?:[^\"\\\r\n]|\\\\(?:\\[\\\"]|[^\"\\\r\n])|\\[^\"\\\r\n])+(?:\\?\")?|'[^'\r\n]+'?"
    r"|[^\s\"'&,;<>(){}\[\]]+"
)
_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
_PHONE = re.compile(
    r"(?<![\w+.-])(?:0[1-9]([ .-]?)\d{2}(?:\1\d{2}){3}|(?:\+|00)[1-9](?:[ ./()-]{0,2}\d){6,14})(?![\w-]|\.\d)"
)
_MANY_DIGITS = re.compile(r"(?:\+|\d{2})(?:[ ./()-]{0,2}\d){7}|2[AB] ?\d{3}")
_IBAN = re.compile(
    r"(?<![A-Za-z0-9])(?:(?i:fr)\d{2}(?:[ -]?[A-Z0-9]{4}){5}[ -]?[A-Z0-9]{3}"
    r"|[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?)(?![A-Za-z0-9])"
)
# French social security numbers: sex, year, month, department, commune, order, check.
_NIR = re.compile(
    r"(?<![\w+.-])[1-478] ?\d{2} ?(?:0[1-9]|1[0-2]|[2-9]\d) ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3} ?\d{2}(?![\w-]|\.\d)"
)
# Times in milliseconds start with 1 and days with 20, but no card number does. Most numbers of 14
# digits are SIRETs, so only those of cards that start with 3 match.
_CARD = re.compile(
    r"(?<![\w+.-])(?=2[2-7]|[3-6])(?:\d{13}|3\d{13}|\d{15,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}"
    r"|3\d{3}([ -])\d{6}\2\d{4,5})(?![\w-]|\.\d)"
)
_QUERY_SECRETS = frozenset({"key", "sig"})
_TOKEN_PREFIXES = ("apt_", "eyJ", "sk-", "sk_", "whsec_")


def hide(text: str) -> str:
    """Mask secrets and personal data. Cheap checks skip the expressions for most texts."""
    lowered = text.lower()
    if "bearer" in lowered:
        text = _BEARER.sub(rf"\1{MASK}", text)
    if "authorization" in lowered or "cookie" in lowered:
        text = _HEADER.sub(rf"\1\2{MASK}", text)
    if "://" in text:
        text = _QUERY.sub(lambda url: f"{url[1]}?{MASK}" if url["query"] else url[0], text)
        text = _USER.sub(rf"\1{MASK}@", text)
    if ":" in text or "=" in text:
        text = _hide_labelled(text)
    return _hide_shapes(text)


def holds_token(text: str) -> bool:
    return any(prefix in text for prefix in _TOKEN_PREFIXES) and _TOKEN.search(text) is not None


def _hide_shapes(text: str) -> str:
    if holds_token(text):
        text = _TOKEN.sub(MASK, text)
    if "@" in text:
        text = _EMAIL.sub(MASK, text)
    if not _MANY_DIGITS.search(text) and "FR" not in text:
        return text
    text = _IBAN.sub(lambda match: MASK if _is_iban(match[0]) else match[0], text)
    text = _CARD.sub(lambda match: MASK if _is_card(match[0]) else match[0], text)
    return _PHONE.sub(MASK, _NIR.sub(MASK, text))


def _hide_labelled(text: str) -> str:
    """Values after their names, as in `password=...` and `"api_key": "..."`."""
    pieces: list[str] = []
    done = 0
    for label in _LABEL.finditer(text):
        names_a_secret = is_sensitive(label[1])
        if label[1].lower() in _QUERY_SECRETS:
            names_a_secret = text[max(label.start() - 1, 0)] in "?&"
        if label.start() < done or not names_a_secret:
            continue
        value = _LABELLED.match(text, label.end())
        if value and not (is_counter(label[1]) and value[0].replace(".", "").isdecimal()):
            quote = value[0][0] if value[0][0] in "\"'" else ""
            pieces += [text[done : label.end()], quote, MASK, quote]
            done = value.end()
    return "".join([*pieces, text[done:]]) if done else text


def _is_iban(text: str) -> bool:
    """A French IBAN is recognised by its shape. Others need a valid checksum, because ordinary codes
    look like them."""
    plain = text.replace(" ", "").replace("-", "").upper()
    number = "".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])
    return plain.startswith("FR") or int(number) % 97 == 1


def _is_card(text: str) -> bool:
    digits = [int(sign) for sign in reversed(text) if sign.isdecimal()]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


CUT = "[cut]"
DEEPEST = 6
LONGEST = 2000
LONGEST_KEY = 200
MOST_ITEMS = 50
MOST_KEYS = 200
CUT_KEYS = "_cut_keys"
# For all values of one document together.
MOST_VALUES = 2000
MOST_TEXT = 64_000
# This much text after the cut is examined too, so that a secret at the cut is recognised. The last
# characters of that may be half a secret.
_LOOKAHEAD = 500
_UNSAFE_END = 64
_MOST_BITS = 256
_MOST_COUNTS = 20


def masked(value: object) -> object:
    """The masked value as JSON. Masking is idempotent and never fails."""
    return _Walk().value(value, 0)


def masked_document(document: Mapping[str, object]) -> dict[str, object]:
    result = masked(document)
    return cast("dict[str, object]", result) if isinstance(result, dict) else {}


def masked_text(text: str, longest: int = LONGEST) -> str:
    # A cut can create something to mask, such as a number that was part of a word before.
    for _ in range(8):
        seen = text
        text = hide(seen[: longest + _LOOKAHEAD])
        if len(seen) > longest + _LOOKAHEAD and not text.rstrip("\"'").endswith(MASK):
            text = _cut(text, max(len(text) - _UNSAFE_END, 1))
        text = _cut(text, longest)
        if text == seen:
            break
    return text


class _Walk:
    """Masks a value recursively, up to a number of values and an amount of text."""

    def __init__(self) -> None:
        self._values = MOST_VALUES
        self._text = MOST_TEXT
        self._ancestors: set[int] = set()

    def value(self, value: object, depth: int) -> object:
        if self._values <= 0 or self._text <= 0:
            return CUT
        self._values -= 1
        try:
            return self._known(value, depth)
        except Exception:  # noqa: BLE001  an unknown object may raise anything when it is inspected
            return f"[{type(value).__name__}]"

    def _known(self, value: object, depth: int) -> object:
        if type(value) is str:
            return self._masked(value)
        if isinstance(value, Enum):
            return self._known(cast("object", value.value), depth)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return _number(value)
        if isinstance(value, (dict, list, tuple, Mapping, Set)):
            return self._container(cast("Mapping[object, object] | Iterable[object]", value), depth)
        return self._masked(_text(value))

    def _masked(self, text: str, longest: int = LONGEST) -> str:
        result = masked_text(text, longest)
        self._text -= max(min(len(text), longest + _LOOKAHEAD), len(result))
        return result

    def _container(self, value: Mapping[object, object] | Iterable[object], depth: int) -> object:
        identity = id(value)
        if depth >= DEEPEST or identity in self._ancestors:
            return CUT
        self._ancestors.add(identity)
        try:
            if isinstance(value, Mapping):
                return self._document(cast("Mapping[object, object]", value), depth)
            items = list(islice(value, MOST_ITEMS + 1))
            kept = items if len(items) <= MOST_ITEMS else [*items[: MOST_ITEMS - 1], CUT]
            return [self.value(item, depth + 1) for item in kept]
        finally:
            self._ancestors.discard(identity)

    def _document(self, document: Mapping[object, object], depth: int) -> dict[str, object]:
        entries = list(islice(document.items(), MOST_KEYS + 1))
        if len(entries) > MOST_KEYS:
            entries = [*entries[: MOST_KEYS - 1], (CUT_KEYS, len(document) - MOST_KEYS + 1)]
        result: dict[str, object] = {}
        for key, value in entries:
            name = self._name(key, depth)
            # Empty, cut and boolean values are not secret, nor are numbers under the name of a counter.
            is_harmless = value is None or isinstance(value, bool) or value in ("", CUT)
            is_masked = (
                not is_harmless
                and is_sensitive(name)
                and not (is_counter(name) and _is_count(value))
            )
            self._values -= is_masked
            result[name] = MASK if is_masked else self.value(value, depth + 1)
        return result

    def _name(self, key: object, depth: int) -> str:
        if type(key) is str and len(key) <= LONGEST_KEY:
            name = _masked_name(key)
            self._text -= max(len(key), len(name))
            return name
        return self._masked(key if type(key) is str else str(self.value(key, depth)), LONGEST_KEY)


@lru_cache(maxsize=4096)
def _masked_name(key: str) -> str:
    return masked_text(key, LONGEST_KEY)


def _number(value: float) -> object:
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MOST_BITS else CUT
    return float(value) if isfinite(value) else str(float(value))


def _text(value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return (
        f"[{type(value).__name__}]"
        if callable(value) or isinstance(value, bytes | bytearray)
        else str(value)
    )


def _is_count(value: object, depth: int = 0) -> bool:
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return (
            depth < 2
            and len(entries) <= _MOST_COUNTS
            and all(
                _is_count(each, depth + 1) and (is_counter(str(key)) or not is_sensitive(str(key)))
                for key, each in entries.items()
            )
        )
    if isinstance(value, int | float):
        return isinstance(_number(value), int | float)
    return value is None or value == CUT


def _cut(text: str, longest: int) -> str:
    """Truncates the text. It never ends inside of a mask."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 1]
    mask_start = kept.rfind("[")
    if mask_start >= 0 and MASK.startswith(kept[mask_start:]) and kept[mask_start:] != MASK:
        kept = kept[:mask_start]
    return kept + "…"


# Spreadsheets treat a cell that starts with one of these as a formula, some of them also after blanks
# and invisible characters. The last four are full-width characters.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_MARKUP = re.compile(r"[\\`*\[\]<>#!|~&]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=\bwww)\.|@(?=\w)")
# Control characters (C0 without the tab, DEL, C1), line separators, and characters that change the
# direction of text.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def csv_cell(value: object) -> object:
    """Puts an apostrophe before a text that would be a formula. Numbers stay numbers."""
    if not isinstance(value, str):
        return value
    first = next((sign for sign in value if sign.isprintable() and not sign.isspace()), None)
    return f"'{value}" if first in _FORMULA or value.startswith(("\t", "\r", "\n")) else value


def markdown_cell(value: object) -> str:
    """The text on one line. Markup, links and HTML in it are escaped, `<` and `&` with a backslash
    too."""
    return _MARKUP.sub(r"\\\g<0>", visible(" ".join(str(value).split())))


def visible(text: str) -> str:
    """Replaces control characters by escapes, which are also valid in JSON."""
    return _CONTROL.sub(lambda match: _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}", text)


_ESCAPES = {"\n": "\\n", "\r": "\\r"}
