"""API keys, as people paste them into settings."""

from automation_pipeline.core.errors import PermanentError


def bare_key(key: str | None) -> str:
    """The key without what copying leaves around it: blanks and one pair of quotes. Empty when there is none."""
    text = (key or "").strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    return text


def usable_key(key: str | None, provider: str, setting: str) -> str:
    """The bare key; PermanentError, which names provider and setting but not the key: there is none to send."""
    text = bare_key(key)
    if not text:
        raise PermanentError(f"{provider} API key not configured (set {setting})")
    if not (text.isascii() and text.isprintable()):
        raise PermanentError(f"{provider} API key holds characters that cannot be sent (set {setting})")
    return text
