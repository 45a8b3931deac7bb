"""Query strings that a room reads by itself, as the OpenAPI document tells of them."""

from typing import Any

from pydantic import BaseModel


def asked_with(model: type[BaseModel]) -> dict[str, Any]:  # Any: a piece of the document
    """For `openapi_extra`: the fields of the model are parameters of the query. Empty ones are not given."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    required: list[str] = schema.get("required", [])
    return {
        "parameters": [
            {"name": name, "in": "query", "required": name in required, "schema": field, "allowEmptyValue": True}
            for name, field in schema["properties"].items()
        ]
    }
