"""JSON as a model writes it: read with patience, complained about in French, the language it is asked in."""

import json
import re
from typing import Annotated, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, ValidationError

LONGEST_TEXT = 20_000
_MOST_COMPLAINTS = 8
_LARGEST = 2**31 - 1


class WrittenError(ValueError):
    """`problem`: one French sentence that tells the model what to mend."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _storable(given: object) -> object:
    """Without NUL and halves of surrogate pairs, which a JSON escape can smuggle in and no database takes."""
    if not isinstance(given, str):
        return given
    return given.replace("\0", "").encode(errors="replace").decode()[:LONGEST_TEXT]


def _whole(given: object) -> object:
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _real(given: object) -> object:
    return float(given) if type(given) is int and abs(given) <= _LARGEST else given


Text = Annotated[str, BeforeValidator(_storable)]
Whole = Annotated[StrictInt, Field(ge=-_LARGEST, le=_LARGEST), BeforeValidator(_whole)]
Count = Annotated[StrictInt, Field(ge=0, le=_LARGEST), BeforeValidator(_whole)]
Seconds = Annotated[StrictFloat, Field(ge=0, le=_LARGEST, allow_inf_nan=False), BeforeValidator(_real)]
Flag = StrictBool


class Written(BaseModel):
    """Unknown fields are ignored: a provider without strict schemas lets some through."""

    model_config = ConfigDict(extra="ignore", frozen=True)


Model = TypeVar("Model", bound=Written)


def read_json(model: type[Model], text: str) -> Model:
    """WrittenError when it is no such thing."""
    try:
        return model.model_validate(_json_object(text))
    except ValidationError as error:
        raise WrittenError(_complaints(error)) from None


def _json_object(text: str) -> dict[str, object]:
    """A fence around the object is taken off, and one missing brace at its end is put there."""
    bare = text.replace("\0", "").strip()
    if "```" in bare:
        bare = re.sub(r"^```\w*\s*|\s*```$", "", bare)
    read = _loaded(bare)
    if read is None:
        read = _loaded(bare + "}")
    if read is None:
        raise WrittenError("La réponse n'est pas du JSON valide : donne un seul objet JSON complet, sans autre texte.")
    if not isinstance(read, dict):
        raise WrittenError("La réponse doit être un objet JSON, pas une autre valeur.")
    return cast("dict[str, object]", read)


def _loaded(text: str) -> object:
    """None when it cannot be read: broken, nested too deep, or with a number of thousands of digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_PLAINLY = {
    "missing": "est obligatoire",
    "bool_type": "doit être true ou false",
    "string_type": "doit être un texte",
    "tuple_type": "doit être une liste",
    "model_type": "doit être un objet",
    "int_type": "doit être un nombre entier",
    "float_type": "doit être un nombre",
    "finite_number": "doit être un nombre fini",
    "enum": "doit être une des valeurs permises : {expected}",
    "literal_error": "doit être une des valeurs permises : {expected}",
    "greater_than_equal": "doit être au moins {ge}",
    "less_than_equal": "doit être au plus {le}",
    "too_short": "doit avoir au moins {min_length} élément(s)",
    "too_long": "doit avoir au plus {max_length} éléments",
}


def _complaints(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    told: list[str] = []
    for problem in problems[:_MOST_COMPLAINTS]:
        why = _PLAINLY.get(problem["type"], "n'est pas valide").format(**problem.get("ctx", {}))
        told.append(f"{_path(problem['loc'])} {why}".replace("' or '", "' ou '"))
    more = len(problems) - len(told)
    return "; ".join(told) + (f"; et {more} autre(s) faute(s)" if more else "") + "."


def _path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")
