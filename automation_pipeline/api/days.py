"""Days in query strings. Each endpoint has its own sentence for a wrong one, so they are read there and only described
here."""

from typing import Any

from automation_pipeline.fiches.domain.times import FIRST_YEAR, LAST_YEAR

# A pattern beside the format would leave those who make up values little to find.
_SCHEMA = {"type": "string", "format": "date"}


def day_parameters(**described: str) -> dict[str, Any]:  # Any: JSON
    """For `openapi_extra`: these parameters of the query must be there, each a day."""
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": True,
                "description": f"{description} From {FIRST_YEAR} to {LAST_YEAR}.",
                "schema": _SCHEMA,
                "example": "2026-02-03",
            }
            for name, description in described.items()
        ]
    }
