"""JSON schemas in requests to the model: the problems that strict mode reports, and the smallest valid value."""

from collections.abc import Iterator, Mapping
from typing import cast

Schema = Mapping[str, object]
MAX_DEPTH = 40


def strict_problem(schema: object) -> str | None:
    """The reason why strict mode refuses the schema, in the words of the provider. None if it accepts it."""
    return next(_problems(schema, ()), None)


def minimal_value(schema: Schema) -> object:
    """The smallest value that satisfies the schema. Only common keywords are supported."""
    return _minimal_value(schema, schema, 0)


def _problems(schema: object, path: tuple[str, ...]) -> Iterator[str]:
    if len(path) > MAX_DEPTH:
        yield f"In context={path[:4]}, the schema exceeds the limit of nesting."
        return
    fields = _map(schema)
    properties = _map(fields.get("properties"))
    if "object" in _types(fields) or properties:
        yield from _object_problems(fields, properties, path)
    for inner_path, inner in _inner(fields):
        yield from _problems(inner, (*path, *inner_path))


def _inner(fields: Schema) -> Iterator[tuple[tuple[str, ...], object]]:
    """The schemas inside a schema, with their paths."""
    for name in ("properties", "$defs", "definitions"):
        for key, schema in _map(fields.get(name)).items():
            yield (name, key), schema
    if "items" in fields:
        yield ("items",), fields["items"]
    options = fields.get("anyOf")
    for index, schema in enumerate(
        cast("list[object]", options) if isinstance(options, list) else ()
    ):
        yield ("anyOf", str(index)), schema


def _object_problems(fields: Schema, properties: Schema, path: tuple[str, ...]) -> Iterator[str]:
    context = f"In context={path}, "
    if fields.get("additionalProperties") is not False:
        yield f"{context}'additionalProperties' is required to be supplied and to be false."
    listed = fields.get("required")
    required = cast("list[object]", listed) if isinstance(listed, list) else []
    if missing := [key for key in properties if key not in required]:
        yield (
            f"{context}'required' is required to be supplied and to be an array including every key in properties. "
            f"Missing '{missing[0]}'."
        )


def _types(schema: Schema) -> list[object]:
    kind = schema.get("type")
    return cast("list[object]", kind) if isinstance(kind, list) else [kind]


def _map(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _minimal_value(schema: Schema, root: Schema, depth: int) -> object:
    if depth > MAX_DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    if isinstance(values := schema.get("enum"), list) and values:
        return cast("list[object]", values)[0]
    if inner := _chosen(schema, root):
        return _minimal_value(inner, root, depth + 1)
    return _of_type(schema, root, depth)


def _chosen(schema: Schema, root: Schema) -> Schema | None:
    """The schema that a reference points to, or the first alternative."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        found: object = root
        for part in reference[1:].split("/")[1:]:
            found = _map(found).get(part)
        return _map(found) or None
    for name in ("anyOf", "oneOf", "allOf"):
        options = schema.get(name)
        if isinstance(options, list) and options:
            return _map(cast("list[object]", options)[0])
    return None


def _of_type(schema: Schema, root: Schema, depth: int) -> object:
    kind = _types(schema)[0] or ("object" if "properties" in schema else "string")
    match kind:
        case "object":
            return {
                name: _minimal_value(_map(one), root, depth + 1)
                for name, one in _map(schema.get("properties")).items()
            }
        case "array":
            return [
                _minimal_value(_map(schema.get("items")), root, depth + 1)
                for _ in range(_count(schema, "minItems"))
            ]
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "x" * _count(schema, "minLength")


def _count(schema: Schema, name: str) -> int:
    value = schema.get(name)
    return value if isinstance(value, int) else 0


def _number(schema: Schema) -> int | float:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    if isinstance(low, int | float):
        return low
    if isinstance(above, int | float):
        return above + 1
    return 0
