"""What a secret in plain text is known by: its name, its look, or a name that stands beside it. It is a guess: what is
called `key` alone may be anything and passes in a body, as does whatever looks like a sentence."""

import re
from base64 import b64decode
from binascii import Error as NoBase64Error
from collections.abc import Mapping

from automation_pipeline.core.sensitive_keys import is_secret, is_sensitive, words_of
from automation_pipeline.core.sensitive_texts import holds_token

# Keys to something, not of something: an issue's key or the one to sort by is none.
_KEYS_TO = frozenset(
    {
        "account", "admin", "app", "application", "client", "consumer", "function", "functions", "genie", "hook",
        "ingest", "ingestion", "integration", "licence", "license", "master", "routing", "service", "shared", "storage",
        "subscription", "user", "webhook", "write",
    }
)  # fmt: skip
_ENDINGS = tuple(f"{word}key" for word in _KEYS_TO)
# Where a name alone does not tell: these mean a secret in a header or in a query.
_SENT_WORDS = frozenset({"auth", "key", "session", "sid", "sig"})
_KEYS_OF = frozenset({"cache", "group", "order", "sort"})
_SCHEME = re.compile(r"(?i)\s*(?:basic|bearer|digest|hmac|negotiate|token|[a-z]*[_-]?key)\s+\S")
# After the name of a scheme a sentence may go on: a credential is one word, and not one of a language.
_BASIC = re.compile(r"(?i)\s*basic\s+([a-z0-9+/_-]{4,}={0,2})\s*")
_BEARER = re.compile(r"(?i)\s*bearer\s+[\w.~+/=-]{6,}\s*")
_KEYED = re.compile(r"(?i)\s*(?:digest|hmac|negotiate|token|[a-z]*[_-]?key)\s+(?=\S*\d)[\w.~+/=:-]{8,}\s*")
_NAMES, _VALUES = ("name", "key", "header"), ("value", "val")


def names_secret(name: str) -> bool:
    """Anywhere in a payload."""
    words = words_of(name)
    joined = "".join(words)
    return is_secret(name) or "sig" in words or joined == "session" or joined.endswith(_ENDINGS)


def is_secret_when_sent(name: str) -> bool:
    """Of a header or a parameter of a query."""
    named = set(words_of(name))
    said = named & _SENT_WORDS
    return is_sensitive(name) or names_secret(name) or bool(said - {"key"} or (said and not named & _KEYS_OF))


def is_scheme(text: str) -> bool:
    """A header's value that begins as those do by which somebody shows who they are."""
    return _SCHEME.match(text) is not None


def looks_secret(text: str) -> bool:
    """Wherever it stands."""
    basic = _BASIC.fullmatch(text)
    if basic is not None:
        return _holds_password(basic[1])
    return bool(_BEARER.fullmatch(text) or _KEYED.fullmatch(text) or holds_token(text))


def named_beside(document: Mapping[str, object]) -> tuple[str, str] | None:
    """In {"name": "Authorization", "value": ...}: the field in which the secret is, and what it is called."""
    fields = {name.lower(): name for name in document if len(name) <= len("header")}
    called = next((document[fields[name]] for name in _NAMES if name in fields), None)
    field = next((fields[name] for name in _VALUES if name in fields), None)
    if field is None or not isinstance(called, str) or not names_secret(called):
        return None
    return field, called[:100]


def _holds_password(encoded: str) -> bool:
    """A user's name and a password, with a colon between them."""
    try:
        return b":" in b64decode(encoded.rstrip("=") + "=" * (-len(encoded.rstrip("=")) % 4), altchars=b"-_")
    except NoBase64Error:
        return False
