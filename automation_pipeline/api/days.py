"""Days in query strings. Each endpoint has its own sentence for a wrong one, so they are read there and only described
here."""

from typing import Any


def day_parameters(**described: str) -> dict[str, Any]:  # Any: JSON
    """For `openapi_extra`: these parameters of the query must be there, each a day."""
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": True,
                "description": description,
                "schema": {"type": "string", "format": "date"},
                "example": "2026-02-03",
            }
            for name, description in described.items()
        ]
    }
