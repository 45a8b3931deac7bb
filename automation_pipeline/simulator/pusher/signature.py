"""Signed calls as the protocol document has them: who called is proven by the query, what is said
by its digest."""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE_SECONDS = 600
_WHOLE_NUMBER = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True)
class App:
    app_id: str
    key: str
    secret: str


def refusal(
    app: App, method: str, path: str, query: Sequence[tuple[str, str]], now: float
) -> str | None:
    """Why the call is not taken; None: its signature is the application's."""
    given = {name.lower(): value for name, value in query}
    if len(given) < len(query):
        return "Each parameter can be given once"
    if not hmac.compare_digest(given.get("auth_key", "").encode(), app.key.encode()):
        return "auth_key is not a key of this application"
    if given.get("auth_version") != "1.0":
        return "auth_version must be 1.0"
    at = given.get("auth_timestamp", "")
    if not _WHOLE_NUMBER.fullmatch(at) or abs(int(at) - now) > TOLERANCE_SECONDS:
        return f"auth_timestamp must be within {TOLERANCE_SECONDS} s of the server's time"
    signature = given.pop("auth_signature", "")
    parameters = "&".join(f"{name}={given[name]}" for name in sorted(given))
    signed = "\n".join((method.upper(), path, parameters)).encode()
    expected = hmac.new(app.secret.encode(), signed, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return "auth_signature is not the one of this call"
    return None


def is_of_body(digest: str | None, body: bytes) -> bool:
    """A call without a body may leave the digest out."""
    if digest is None:
        return not body
    expected = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return hmac.compare_digest(digest.encode(), expected.encode())
