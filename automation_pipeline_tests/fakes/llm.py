"""A language model in memory (`audits.models.chat.LanguageModel`).
`audits/test_language_model_contract.py` runs it and the real client through the same tests.

`step_answer` returns a valid answer for the step in a prompt, `tool_call_reply` a reply that calls a
tool.
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
    """Answers with a function or with a list of replies; without either with `honest_answer`, which
    finds all points PRESENT.

    It refuses the questions that a provider would refuse. `questions` lists all questions in order,
    including those that were refused or failed. `max_concurrent` is the highest number of concurrent
    calls; `during_call` is awaited during each call.
    """

    def __init__(
        self,
        answers: Answers | Iterable[Reply | Exception] | None = None,
        *,
        name: str = "fake-model",
        during_call: Callable[[Question], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.questions: list[Question] = []
        self.max_concurrent = 0
        self._answers = (
            answers
            if callable(answers)
            else honest_answer
            if answers is None
            else scripted(answers)
        )
        self._during_call = during_call
        self._open = 0
        self._once: list[AutomationError] = []
        self._refusal: AutomationError | None = None

    @property
    def calls(self) -> int:
        return len(self.questions)

    def fail_once(self, *errors: AutomationError) -> None:
        """The next questions raise these errors, one error per question."""
        self._once.extend(errors)

    def refuse_everything(self, error: AutomationError | None) -> None:
        """Every question raises this error, until this method is called with None."""
        self._refusal = error

    async def check(self) -> None:
        if self._refusal:
            raise self._refusal

    async def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        error = self._refusal or (self._once.pop(0) if self._once else None) or refusal_of(question)
        self._open += 1
        self.max_concurrent = max(self.max_concurrent, self._open)
        try:
            await (self._during_call(question) if self._during_call else asyncio.sleep(0))
        finally:
            self._open -= 1
        answer = error or self._answers(question)
        if isinstance(answer, Exception):
            raise answer
        return answer


def scripted(replies: Iterable[Reply | Exception]) -> Answers:
    remaining = iter(list(replies))

    def answer(_: Question) -> Reply | Exception:
        reply = next(remaining, None)
        assert reply is not None, "The fake got more questions than it has replies."
        return reply

    return answer


def honest_answer(question: Question) -> Reply:
    """A search if a tool call is required, else the answer for the step."""
    if question.tools and question.tool_choice is ToolChoice.REQUIRED:
        return tool_call_reply(
            question.tools[0].name, query="bonjour", maxResults=None, minTermLength=None
        )
    return step_answer(question)


def tool_call_reply(name: str, call_id: str = "call_1", **arguments: Any) -> Reply:
    """A reply that calls one tool."""
    return Reply("", USAGE, (ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False)),))


def json_reply(document: object, usage: Usage = USAGE) -> Reply:
    return Reply(json.dumps(document, ensure_ascii=False), usage)


def refusal_of(question: Question) -> PermanentError | None:
    """The error with which a provider refuses an invalid question."""
    schemas = [question.schema.schema, *(tool.parameters for tool in question.tools)]
    wrong = next(
        (
            problem
            for problem, met in (
                ("There are no messages.", not question.messages),
                (
                    "Tool calls and tool results do not match.",
                    _tool_results_do_not_match(question.messages),
                ),
                ("A schema is not strict.", not all(map(_is_strict, schemas))),
            )
            if met
        ),
        None,
    )
    return PermanentError(f"LLM call failed status=400 provider_message={wrong}") if wrong else None


def _tool_results_do_not_match(messages: Iterable[Message]) -> bool:
    """Each tool call must have its result before the next message, and each result its call."""
    waiting: set[str | None] = set()
    for message in messages:
        is_result = message.role is Role.TOOL
        if is_result != bool(waiting) or (is_result and message.tool_call_id not in waiting):
            return True
        waiting = (waiting - {message.tool_call_id}) | {call.id for call in message.tool_calls}
    return bool(waiting)


def _is_strict(schema: object) -> bool:
    """In strict mode every object requires all its properties and allows no others, at every depth."""
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
    """A valid `audit_step` answer for the step in the prompt. `statuts` is one status for all points,
    or one per point. The evidence is quoted from the transcript; `quotation` replaces its text.
    `changes` replaces top-level fields."""
    return json_reply(
        step_document(question, statuts=statuts, quotation=quotation) | changes, usage
    )


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
        """The step in the last user message that contains one."""
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
        raise AssertionError("No user message contains a step.")


def _points(body: str) -> tuple[str, ...]:
    """A line that does not begin with the next number continues the point before it."""
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
    """One citation per passage that is long enough to be evidence, from the transcript in the prompt,
    else from the results of the tools."""
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
    position: dict[str, Any] = {}
    for line in block[1].splitlines() if block else ():
        if recording := re.match(r"--- Enregistrement (\d+) ---", line):
            position = {"recording_index": int(recording[1]) - 1}
        elif called := re.match(r"Date : (.*?) \| Heure : (.*?) \|", line):
            position |= {
                "recording_date": called[1],
                "recording_time": called[2],
                "recording_url": "N/A",
            }
        elif segment := re.match(r"\[Segment (\d+)\] ([\d.]+) s - ", line):
            position |= _time_fields(float(segment[2])) | {"chunk_index": int(segment[1]) - 1}
        elif "chunk_index" in position and (turn := _TURN.match(line)):
            found.append({"texte": turn[2].strip(), "speaker": turn[1]} | position)
    return found


def _citations_of_tool(message: Message) -> list[dict[str, Any]]:
    names = ("recording_index", "chunk_index", "recording_date", "recording_time", "recording_url")
    return [
        {"texte": turn[2].strip(), "speaker": turn[1]}
        | _time_fields(chunk["minutage_secondes"])
        | {name: chunk[name] for name in names}
        for chunk in json.loads(message.content).get("chunks", ())
        for turn in _TURN.finditer(chunk["full_text"])
    ]


def _time_fields(seconds: float) -> dict[str, Any]:
    return {
        "minutage": f"{int(seconds) // 60:02}:{int(seconds) % 60:02}",
        "minutage_secondes": seconds,
    }
