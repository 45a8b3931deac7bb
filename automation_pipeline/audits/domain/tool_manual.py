"""How the tools are described to the model. What they do is in `tools`."""

from collections.abc import Mapping

from automation_pipeline.audits.domain.chat import Tool


def _parameters(**properties: Mapping[str, object]) -> Mapping[str, object]:
    """Strict: every parameter is required, and null stands for its ordinary value."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _optional(description: str) -> Mapping[str, object]:
    return {"type": ["integer", "null"], "description": f"{description} si null"}


_INDEX = {"type": "integer", "description": "À partir de 0, comme l'a rendu searchTranscript"}

SEARCH = Tool(
    "searchTranscript",
    "Cherche des mots dans les transcriptions et rend les segments qui en contiennent le plus, avec un aperçu.",
    _parameters(
        query={"type": "string", "description": "Les mots à chercher, sans souci de casse ni d'accents"},
        maxResults=_optional("Nombre de résultats, de 1 à 50 ; 25"),
        minTermLength=_optional("Longueur des mots les plus courts à chercher, de 2 à 8 ; 3"),
    ),
)
READ = Tool(
    "getTranscriptChunks",
    "Rend le texte entier de segments, à citer mot pour mot.",
    _parameters(
        chunks={
            "type": "array",
            "items": _parameters(recording_index=_INDEX, chunk_index=_INDEX),
            "description": "De 1 à 60 segments, dont les 20 premiers sont rendus",
        },
        includeNeighbors=_optional("Nombre de segments voisins à joindre de chaque côté, de 0 à 2 ; 0"),
        maxChars=_optional("Nombre de caractères de texte, de 1000 à 80000 ; 20000"),
    ),
)
