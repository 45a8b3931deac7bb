"""A language model in memory: `audits.models.chat.LanguageModel`, run through the same contract as the
real client.

`step_answer` is what an honest model says about the step in a prompt; `wish` is a wish for a tool.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from automation_pipeline.audits.models.chat import (
    Message,
    Question,
    Reply,
    Role,
    ToolCall,
    ToolChoice,
    Usage,
)
from automation_pipeline.core.errors import AutomationError, PermanentError

Answers = Callable[[Question], Reply | Exception]

USAGE = Usage(prompt_tokens=1200, completion_tokens=80)
_VALUE = {"PRESENT": 1.0, "PARTIEL": 0.5, "ABSENT": 0.0}
_EVIDENT = ("PRESENT", "PARTIEL")
_STEP = re.compile(r"(?ms)^=== ÉTAPE (\d+)/\d+ : (.*?) ===$\n(.*?)^=== FIN DE L'ÉTAPE ===$")
_TRANSCRIPT = re.compile(
    r"(?ms)^=== TRANSCRIPTION DES APPELS ===$\n(.*?)^=== FIN DE LA TRANSCRIPTION ===$"
)
_KEYWORDS = re.compile(r"(?m)^Mots-clés : (.*)$")
_TURN = re.compile(r"(?m)^([\w-]+): (.*)$")


class FakeLanguageModel:
    """Answers by a function, or by a script in its order; without either it is honest and finds all
    points PRESENT.

    A question that a provider would refuse is refused. `asked` lists the questions in their order,
    refused and failed ones too. `most_at_once` is how many were ever open together; `during_call` is
    awaited in the middle of each.
    """

    def __init__(
        self,
        answers: Answers | Iterable[Reply | Exception] | None = None,
        *,
        name: str = "fake-model",
        during_call: Callable[[Question], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.asked: list[Question] = []
        self.most_at_once = 0
        self._answers = (
            answers if callable(answers) else honest if answers is None else scripted(answers)
        )
        self._during_call = during_call
        self._open = 0
        self._once: list[AutomationError] = []
        self._refusal: AutomationError | None = None

    @property
    def calls(self) -> int:
        return len(self.asked)

    def fail_once(self, *errors: AutomationError) -> None:
        """The next questions raise these, one each."""
        self._once.extend(errors)

    def refuse_everything(self, error: AutomationError | None) -> None:
        """Until it is called again with None."""
        self._refusal = error

    async def check(self) -> None:
        if self._refusal:
            raise self._refusal

    async def ask(self, question: Question) -> Reply:
        self.asked.append(question)
        error = self._refusal or (self._once.pop(0) if self._once else None) or refusal_of(question)
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        try:
            await (self._during_call(question) if self._during_call else asyncio.sleep(0))
        finally:
            self._open -= 1
        answer = error or self._answers(question)
        if isinstance(answer, Exception):
            raise answer
        return answer


def scripted(replies: Iterable[Reply | Exception]) -> Answers:
    left = iter(list(replies))

    def answer(_: Question) -> Reply | Exception:
        following = next(left, None)
        assert following is not None, "The fake was asked more often than its script has answers."
        return following

    return answer


def honest(question: Question) -> Reply:
    """A search where a tool must be called, else the step's answer."""
    if question.tools and question.tool_choice is ToolChoice.REQUIRED:
        return wish(question.tools[0].name, query="bonjour", maxResults=None, minTermLength=None)
    return step_answer(question)


def wish(name: str, call_id: str = "call_1", **arguments: Any) -> Reply:
    """The model's wish for one tool."""
    return Reply("", USAGE, (ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False)),))


def saying(document: object, usage: Usage = USAGE) -> Reply:
    """The document as the answer."""
    return Reply(json.dumps(document, ensure_ascii=False), usage)


def refusal_of(question: Question) -> PermanentError | None:
    """What a provider has against the question, if anything."""
    schemas = [question.schema.schema, *(tool.parameters for tool in question.tools)]
    wrong = next(
        (
            problem
            for problem, met in (
                ("There are no messages.", not question.messages),
                (
                    "Wishes and results of tools do not match.",
                    _results_are_astray(question.messages),
                ),
                ("A schema is not strict.", not all(map(_is_strict, schemas))),
            )
            if met
        ),
        None,
    )
    return PermanentError(f"LLM call failed status=400 provider_message={wrong}") if wrong else None


def _results_are_astray(messages: Iterable[Message]) -> bool:
    """Each wish must have its result before anything else is said, and a result its wish."""
    waiting: set[str | None] = set()
    for message in messages:
        is_result = message.role is Role.TOOL
        if is_result != bool(waiting) or (is_result and message.tool_call_id not in waiting):
            return True
        waiting = (waiting - {message.tool_call_id}) | {call.id for call in message.tool_calls}
    return bool(waiting)


def _is_strict(schema: object) -> bool:
    """Strict mode wants every property required and no other one, at every depth."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        whole = schema.get("additionalProperties") is False and set(
            schema.get("required", ())
        ) == set(properties)
        return whole and all(map(_is_strict, properties.values()))
    return all(map(_is_strict, schema.values()))


def step_answer(
    question: Question,
    *,
    statuts: Sequence[str] | str = "PRESENT",
    quotation: str | None = None,
    usage: Usage = USAGE,
    **changes: Any,
) -> Reply:
    """A valid `audit_step` answer for the step in the prompt. `statuts` is one for all points or
    one a point; the evidence is quoted from the transcript, or is `quotation` said to stand there;
    `changes` are other top fields."""
    return saying(step_document(question, statuts=statuts, quotation=quotation) | changes, usage)


def step_document(
    question: Question, *, statuts: Sequence[str] | str = "PRESENT", quotation: str | None = None
) -> dict[str, Any]:
    step = StepInPrompt.of(question)
    given = [statuts] * len(step.points) if isinstance(statuts, str) else list(statuts)
    assert len(given) == len(step.points), f"{len(given)} statuts for {len(step.points)} points"
    quoted = islice(cycle(citations(question) or [None]), len(step.points))
    points = [
        _point_document(
            point, statut, citation and (citation | ({"texte": quotation} if quotation else {}))
        )
        for point, statut, citation in zip(step.points, given, quoted, strict=True)
    ]
    counted = [_VALUE[statut] for statut in given if statut in _VALUE]
    ratio = sum(counted) / len(counted) if counted else 1.0
    conforme, niveau = _verdict(ratio)
    return {
        "traite": True,
        "conforme": conforme,
        "minutages": sorted({minutage for point in points for minutage in point["minutages"]}),
        "score": round(ratio * step.weight),
        "points_controle": points,
        "mots_cles_trouves": list(step.keywords),
        "commentaire_global": "Étape analysée.",
        "niveau_conformite": niveau,
        "erreurs_transcription_tolerees": 0,
    }


def _verdict(ratio: float) -> tuple[str, str]:
    if ratio >= 0.85:
        return "CONFORME", "EXCELLENT" if ratio >= 0.95 else "BON"
    return ("PARTIEL", "ACCEPTABLE") if ratio >= 0.4 else ("NON_CONFORME", "INSUFFISANT")


def _point_document(point: str, statut: str, citation: Mapping[str, Any] | None) -> dict[str, Any]:
    evidence = [citation] if citation and statut in _EVIDENT else []
    return {
        "point": point,
        "statut": statut,
        "commentaire": f"Jugé {statut}.",
        "citations": evidence,
        "minutages": [cited["minutage"] for cited in evidence],
        "erreur_transcription_notee": False,
        "variation_phonetique_utilisee": None,
    }


@dataclass(frozen=True)
class StepInPrompt:
    position: int
    name: str
    weight: int
    points: tuple[str, ...]
    keywords: tuple[str, ...]

    @classmethod
    def of(cls, question: Question) -> "StepInPrompt":
        """The step of the last user message that holds one."""
        for message in reversed(question.messages):
            block = _STEP.search(message.content)
            if message.role is Role.USER and block:
                position, name, body = block.groups()
                weight = re.search(r"\| Poids : (\d+)", body)
                return cls(
                    int(position),
                    name,
                    int(weight[1]) if weight else 5,
                    _points(body),
                    _keywords(body),
                )
        raise AssertionError("No user message holds a step.")


def _points(body: str) -> tuple[str, ...]:
    """A line without the next number goes on with the point before it."""
    _, _, listed = body.rpartition("Points de contrôle :\n")
    points: list[str] = []
    for line in listed.splitlines():
        number = f"{len(points) + 1}. "
        if line.startswith(number):
            points.append(line.removeprefix(number))
        elif line.startswith("Mots-clés :"):
            break
        elif points:
            points[-1] += f"\n{line}"
    return tuple(points)


def _keywords(body: str) -> tuple[str, ...]:
    found = _KEYWORDS.findall(body)
    return tuple(found[-1].split(", ")) if found and found[-1] != "aucun" else ()


def citations(question: Question, min_characters: int = 12) -> list[dict[str, Any]]:
    """One for each passage long enough to be evidence: of the transcript in the prompt, else of
    what the tools read."""
    prompts = (message.content for message in question.messages if message.role is Role.USER)
    of_prompt = [cited for prompt in prompts for cited in _citations_of_prompt(prompt)]
    found = of_prompt or [
        cited
        for message in question.messages
        if message.role is Role.TOOL
        for cited in _citations_of_tool(message)
    ]
    return [cited for cited in found if len(cited["texte"]) >= min_characters]


def _citations_of_prompt(prompt: str) -> list[dict[str, Any]]:
    block = _TRANSCRIPT.search(prompt)
    found: list[dict[str, Any]] = []
    place: dict[str, Any] = {}
    for line in block[1].splitlines() if block else ():
        if recording := re.match(r"--- Enregistrement (\d+) ---", line):
            place = {"recording_index": int(recording[1]) - 1}
        elif called := re.match(r"Date : (.*?) \| Heure : (.*?) \|", line):
            place |= {
                "recording_date": called[1],
                "recording_time": called[2],
                "recording_url": "N/A",
            }
        elif segment := re.match(r"\[Segment (\d+)\] ([\d.]+) s - ", line):
            place |= _time(float(segment[2])) | {"chunk_index": int(segment[1]) - 1}
        elif "chunk_index" in place and (turn := _TURN.match(line)):
            found.append({"texte": turn[2].strip(), "speaker": turn[1]} | place)
    return found


def _citations_of_tool(message: Message) -> list[dict[str, Any]]:
    names = ("recording_index", "chunk_index", "recording_date", "recording_time", "recording_url")
    return [
        {"texte": turn[2].strip(), "speaker": turn[1]}
        | _time(chunk["minutage_secondes"])
        | {name: chunk[name] for name in names}
        for chunk in json.loads(message.content).get("chunks", ())
        for turn in _TURN.finditer(chunk["full_text"])
    ]


def _time(seconds: float) -> dict[str, Any]:
    return {
        "minutage": f"{int(seconds) // 60:02}:{int(seconds) % 60:02}",
        "minutage_secondes": seconds,
    }
