"""OpenAI's error bodies, and the refusals that end in them."""

from dataclasses import dataclass

INVALID_REQUEST = "invalid_request_error"


@dataclass(eq=False)
class RefusedError(Exception):
    """An answer other than 200, as OpenAI words it: what is wrong, with which field, under which
    code."""

    message: str
    param: str | None = None
    code: str | None = None
    status: int = 400
    type: str = INVALID_REQUEST

    @property
    def error(self) -> dict[str, object]:
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


def wrong(param: str, wanted: str, *, code: str = "invalid_value") -> RefusedError:
    return RefusedError(f"Invalid '{param}': expected {wanted}.", param, code)


def missing(param: str) -> RefusedError:
    return RefusedError(
        f"Missing required parameter: '{param}'.", param, "missing_required_parameter"
    )


def simulated(status: int) -> object:
    """A faulted answer, named as OpenAI names its own of that status."""
    kind, code = {
        401: (INVALID_REQUEST, "invalid_api_key"),
        404: (INVALID_REQUEST, "model_not_found"),
        429: ("requests", "rate_limit_exceeded"),
    }.get(status, ("server_error" if status >= 500 else INVALID_REQUEST, None))
    return RefusedError(f"Simulated answer {status}.", None, code, status, kind).error
