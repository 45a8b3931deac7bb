"""Secrets and personal data in the middle of a text: after their names, or by their shapes. See `masking`, which also
cuts a text before it comes here. No pattern looks at a part of a text more than a fixed number of times."""

import re

from automation_pipeline.core.sensitive_keys import is_counter, is_sensitive

MASK = "[masked]"

_HEADER = re.compile(
    r"(?i)(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie)([\"']?\s*[:=]\s*+[\"']?+)(?!\[masked\])"
    r"(?:[^\r\n\"'\\]|\\[^\r\n])+"
)
_BEARER = re.compile(r"(?i)((?:\bbearer\s+)+)[^\s\"',;\[\]]+")
# By their shape: our tokens, web tokens, keys of providers. A token's beginning, which lists show, is no secret.
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:apt_[\w-]{12,}|eyJ[\w-]{8,}(?:\.[\w-]+){0,4}|sk[-_][\w-]{12,}|whsec_[\w+/-]{8,}={0,2})"
)
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,30}://)(?!\[masked\]@)[^\s/?#\"'<>]*@")
# Takes an address without a query as well, or one of many addresses in a row would be looked through from each.
_QUERY = re.compile(
    r"(?i)\b((?:https?|wss?)://[^\s?#\"'<>]*+)(?P<query>\?(?!\[masked\])[^\s#\"'<>]+)?",
)
_LABEL = re.compile(
    r"(?<![\w-])((?i:mot de passe|api key(?: provided)?)|[A-Za-z][\w-]{0,100}+)\\?[\"']?\s{0,3}[:=]\s{0,3}\\?"
)
# A quote that is escaped is part of the value; in JSON inside of JSON the value's own quotes are escaped once.
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
# The number of the social security: sex, year, month, department, commune, order, check.
_NIR = re.compile(
    r"(?<![\w+.-])[1-478] ?\d{2} ?(?:0[1-9]|1[0-2]|[2-9]\d) ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3} ?\d{2}(?![\w-]|\.\d)"
)
# No card begins as a time in milliseconds does (1) or as a day (20); of 14 digits, others are numbers of companies.
_CARD = re.compile(
    r"(?<![\w+.-])(?=2[2-7]|[3-6])(?:\d{13}|3\d{13}|\d{15,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}"
    r"|3\d{3}([ -])\d{6}\2\d{4,5})(?![\w-]|\.\d)"
)
_NAMES_OF_QUERIES = frozenset({"key", "sig"})
_BEGINNINGS = ("apt_", "eyJ", "sk-", "sk_", "whsec_")


def hide(text: str) -> str:
    """Most texts hold nothing that a secret could begin with: that is asked first, for it costs next to nothing."""
    lowered = text.lower()
    if "bearer" in lowered:
        text = _BEARER.sub(rf"\1{MASK}", text)
    if "authorization" in lowered or "cookie" in lowered:
        text = _HEADER.sub(rf"\1\2{MASK}", text)
    if "://" in text:
        text = _USER.sub(rf"\1{MASK}@", _QUERY.sub(_without_query, text))
    if ":" in text or "=" in text:
        text = _hide_labelled(text)
    return _hide_shapes(text)


def holds_token(text: str) -> bool:
    """One that is known by its shape."""
    return any(beginning in text for beginning in _BEGINNINGS) and _TOKEN.search(text) is not None


def _hide_shapes(text: str) -> str:
    if holds_token(text):
        text = _TOKEN.sub(MASK, text)
    if "@" in text:
        text = _EMAIL.sub(MASK, text)
    if not _MANY_DIGITS.search(text) and "FR" not in text:
        return text
    text = _IBAN.sub(lambda found: MASK if _is_iban(found[0]) else found[0], text)
    text = _CARD.sub(lambda found: MASK if _is_card(found[0]) else found[0], text)
    return _PHONE.sub(MASK, _NIR.sub(MASK, text))


def _without_query(found: re.Match[str]) -> str:
    return f"{found[1]}?{MASK}" if found["query"] else found[0]


def _hide_labelled(text: str) -> str:
    """Values after their names, as in `password=...` and `"api_key": "..."`."""
    pieces: list[str] = []
    done = 0
    for label in _LABEL.finditer(text):
        if label.start() < done or not _names_a_secret(label):
            continue
        value = _LABELLED.match(text, label.end())
        if value and not (is_counter(label[1]) and value[0].replace(".", "").isdecimal()):
            quote = value[0][0] if value[0][0] in "\"'" else ""
            pieces += [text[done : label.end()], quote, MASK, quote]
            done = value.end()
    return "".join([*pieces, text[done:]]) if done else text


def _names_a_secret(label: re.Match[str]) -> bool:
    if label[1].lower() in _NAMES_OF_QUERIES:
        return label.string[max(label.start() - 1, 0)] in "?&"
    return is_sensitive(label[1])


def _is_iban(text: str) -> bool:
    """A French one by its shape; of other countries the check must be right, for other words look like them."""
    plain = text.replace(" ", "").replace("-", "").upper()
    number = "".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])
    return plain.startswith("FR") or int(number) % 97 == 1


def _is_card(text: str) -> bool:
    """By Luhn's check."""
    digits = [int(sign) for sign in reversed(text) if sign.isdecimal()]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
