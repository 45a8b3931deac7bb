"""Contract tests of `audits.models.chat.LanguageModel`, run on the fake and on the real client against
the simulator."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx
import pytest

from automation_pipeline.audits.models.chat import (
    AnswerSchema,
    LanguageModel,
    Message,
    Question,
    Reply,
    Role,
    Tool,
    ToolChoice,
    Usage,
)
from automation_pipeline.clients.llm import ChatCompletions
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline_tests.fakes.llm import (
    FakeLanguageModel,
    StepInPrompt,
    citations,
    json_reply,
    step_answer,
)
from automation_pipeline_tests.simulator_control import (
    NO_CERTIFICATES,
    add_faults,
    reset,
    running_simulator,
)

Result = TypeVar("Result")

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
KEY = "sk-sim-contract"
MODEL = "gpt-4.1"
ROUTE = "llm.complete"

TRANSCRIPT = """=== TRANSCRIPTION DES APPELS ===
--- Enregistrement 1 ---
Date : 03/02/2026 | Heure : 10:14 | Appel : 98170000012 | De : 0612345678 | Vers : 0145678901 | Durée : 80 s | Segments : 2
[Segment 1] 0.0 s - 45.2 s | Locuteurs : speaker_0, speaker_1
speaker_0: Bonjour madame, cet appel est enregistré pour le suivi de la qualité.
speaker_1: Oui.

[Segment 2] 72.4 s - 80.3 s | Locuteurs : speaker_0
speaker_0: Quels sont vos besoins pour les lunettes et les dents ?
=== FIN DE LA TRANSCRIPTION ===
"""  # noqa: E501  the heading of a recording is one line
STEP = """=== ÉTAPE 3/18 : Découverte des besoins ===
Gravité : HIGH | Poids : 8 | Critique : non | Vérification produit : non
Consigne : Le conseiller demande les besoins.
Points de contrôle :
1. Annonce de l'enregistrement
2. Besoins demandés
Mots-clés : enregistré, besoins
=== FIN DE L'ÉTAPE ===

Analyse maintenant cette étape."""


def strict(**properties: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(*allowed: str) -> dict[str, Any]:
    return {"type": "string"} | ({"enum": list(allowed)} if allowed else {})


WHOLE, NUMBER, FLAG = {"type": "integer"}, {"type": "number"}, {"type": "boolean"}


def several(items: object) -> dict[str, Any]:
    return {"type": "array", "items": items}


def or_null(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


CITATION = strict(
    texte=text(),
    minutage=text(),
    minutage_secondes=NUMBER,
    speaker=text(),
    recording_index=WHOLE,
    chunk_index=WHOLE,
    recording_date=text(),
    recording_time=text(),
    recording_url=text(),
)
POINT = strict(
    point=text(),
    statut=text("PRESENT", "ABSENT", "PARTIEL", "NON_APPLICABLE"),
    commentaire=text(),
    citations=several(CITATION),
    minutages=several(text()),
    erreur_transcription_notee=FLAG,
    variation_phonetique_utilisee=or_null("string"),
)
ANSWER = strict(
    traite=FLAG,
    conforme=text("CONFORME", "NON_CONFORME", "PARTIEL"),
    minutages=several(text()),
    score=WHOLE,
    points_controle=several(POINT),
    mots_cles_trouves=several(text()),
    commentaire_global=text(),
    niveau_conformite=text("EXCELLENT", "BON", "ACCEPTABLE", "INSUFFISANT", "REJET"),
    erreurs_transcription_tolerees=WHOLE,
)
AUDIT_STEP = AnswerSchema("audit_step", ANSWER)
SEARCH = Tool(
    "searchTranscript",
    "Finds passages.",
    strict(query=text(), maxResults=or_null("integer"), minTermLength=or_null("integer")),
)
SYSTEM = Message(Role.SYSTEM, "Tu audites des appels.")
QUESTION = Question((SYSTEM, Message(Role.USER, f"{TRANSCRIPT}\n{STEP}")), AUDIT_STEP)
WITH_TOOLS = Question(
    (
        SYSTEM,
        Message(Role.USER, f"Appels disponibles : 1 enregistrement(s), 2 segment(s).\n\n{STEP}"),
    ),
    AUDIT_STEP,
    (SEARCH,),
    ToolChoice.REQUIRED,
)


@dataclass(frozen=True)
class Provider:
    """The provider under test. `fail_all` makes every later question fail; `calls` counts the questions
    that reached it."""

    open: Callable[[], LanguageModel]
    fail_all: Callable[[AutomationError, dict[str, object]], None]
    calls: Callable[[], int]

    def use(self, act: Callable[[LanguageModel], Awaitable[Result]]) -> Result:
        async def use_and_close() -> Result:
            model = self.open()
            try:
                return await act(model)
            finally:
                if isinstance(model, ChatCompletions):
                    await model.aclose()

        return asyncio.run(use_and_close())

    def ask(self, question: Question = QUESTION) -> Reply:
        return self.use(lambda model: model.ask(question))

    def error(self, question: Question = QUESTION) -> AutomationError:
        with pytest.raises(AutomationError) as caught:
            self.ask(question)
        return caught.value


@pytest.fixture(scope="module")
def simulator_url() -> Iterator[str]:
    with running_simulator("--llm-key", KEY) as url:
        yield url


@pytest.fixture(params=["fake", "http"])
def provider(request: pytest.FixtureRequest) -> Provider:
    return (
        in_memory()
        if request.param == "fake"
        else over_http(request.getfixturevalue("simulator_url"))
    )


def in_memory() -> Provider:
    fake = FakeLanguageModel(name=MODEL)
    return Provider(
        lambda: fake, lambda error, _: fake.refuse_everything(error), lambda: fake.calls
    )


def client(
    url: str, key: str = KEY, model: str = MODEL, timeout_seconds: float = 10
) -> ChatCompletions:
    """A client without certificates, because the simulator uses plain HTTP."""
    transport = httpx.AsyncHTTPTransport(verify=NO_CERTIFICATES)
    options = {"temperature": 0, "timeout_seconds": timeout_seconds}
    return ChatCompletions(key, url, model=model, now=lambda: NOW, transport=transport, **options)


def over_http(url: str) -> Provider:
    reset(url)

    def calls() -> int:
        answer = httpx.get(
            f"{url}/_sim/calls", params={"route": ROUTE}, verify=NO_CERTIFICATES
        ).raise_for_status()
        return answer.json()["routes"][ROUTE]["calls"]

    return Provider(
        lambda: client(url), lambda _, rule: add_faults(url, {"route": ROUTE} | rule), calls
    )


def test_the_name_is_that_of_the_configured_model(provider: Provider) -> None:
    assert provider.open().name == MODEL


def test_an_answer_is_json_of_the_schema_with_its_token_usage(provider: Provider) -> None:
    reply = provider.ask()
    document = json.loads(reply.content)
    assert set(document) == set(ANSWER["properties"])
    assert [point["point"] for point in document["points_controle"]] == [
        "Annonce de l'enregistrement",
        "Besoins demandés",
    ]
    assert (reply.tool_calls, reply.refusal, reply.is_cut) == ((), None, False)
    assert reply.usage.prompt_tokens > 0
    assert reply.usage.completion_tokens > 0


def test_a_required_tool_is_called_with_json_and_its_result_is_used(
    provider: Provider,
) -> None:
    reply = provider.ask(WITH_TOOLS)
    (call, *_) = reply.tool_calls
    assert (call.name, bool(call.id)) == (SEARCH.name, True)
    assert json.loads(call.arguments)["query"]
    results = [
        Message(Role.TOOL, '{"matches": [], "total_matches": 0}', tool_call_id=each.id)
        for each in reply.tool_calls
    ]
    messages = (
        *WITH_TOOLS.messages,
        Message(Role.ASSISTANT, reply.content, reply.tool_calls),
        *results,
    )
    last = provider.ask(replace(WITH_TOOLS, messages=messages, tool_choice=ToolChoice.NONE))
    assert last.tool_calls == ()
    assert len(json.loads(last.content)["points_controle"]) == 2


def test_an_answer_may_be_sent_back_with_its_problem(provider: Provider) -> None:
    first = provider.ask()
    repair = (
        Message(Role.ASSISTANT, first.content),
        Message(Role.USER, "Ta réponse est incomplète. Recommence."),
    )
    again = provider.ask(replace(QUESTION, messages=(*QUESTION.messages, *repair)))
    assert len(json.loads(again.content)["points_controle"]) == 2


@pytest.mark.parametrize(
    "question",
    [
        replace(QUESTION, messages=()),
        replace(
            QUESTION, messages=(*QUESTION.messages, Message(Role.TOOL, "{}", tool_call_id="call_9"))
        ),
        replace(
            QUESTION, schema=AnswerSchema("loose", {"type": "object", "properties": {"a": text()}})
        ),
    ],
    ids=["no messages", "an unrequested result", "a schema that is not strict"],
)
def test_an_invalid_question_is_a_permanent_error(provider: Provider, question: Question) -> None:
    assert isinstance(provider.error(question), PermanentError)


def test_a_tool_call_without_a_result_is_a_permanent_error(provider: Provider) -> None:
    reply = provider.ask(WITH_TOOLS)
    messages = (
        *WITH_TOOLS.messages,
        Message(Role.ASSISTANT, "", reply.tool_calls),
        Message(Role.USER, "Alors ?"),
    )
    assert isinstance(provider.error(replace(WITH_TOOLS, messages=messages)), PermanentError)


def test_a_throttled_call_is_a_transient_error_with_a_retry_after(provider: Provider) -> None:
    provider.fail_all(
        TransientError("status=429", retry_after_seconds=7), {"status": 429, "retry_after": 7}
    )
    error = provider.error()
    assert isinstance(error, TransientError)
    assert error.retry_after_seconds == 7


@pytest.mark.parametrize(
    "rule",
    [
        {"status": 503},
        {"drop": True},
        {"body": "truncated"},
        {"body": "not_json"},
        {"body": "cut_short"},
    ],
)
def test_a_provider_failure_is_a_transient_error_without_a_retry_after(
    provider: Provider, rule: dict[str, object]
) -> None:
    provider.fail_all(TransientError("broken"), rule)
    error = provider.error()
    assert isinstance(error, TransientError)
    assert error.retry_after_seconds is None


@pytest.mark.parametrize("status", [401, 403, 404, 400])
def test_a_refused_key_model_or_question_is_a_permanent_error(
    provider: Provider, status: int
) -> None:
    provider.fail_all(PermanentError(f"status={status}"), {"status": status})
    assert isinstance(provider.error(), PermanentError)


@pytest.mark.parametrize("status", [200, 401, 429, 503])
def test_the_provider_is_called_once_for_any_status(provider: Provider, status: int) -> None:
    if status != 200:
        provider.fail_all(TransientError(f"status={status}"), {"status": status})
    (provider.ask if status == 200 else provider.error)()
    assert provider.calls() == 1


def test_concurrent_questions_work(provider: Provider) -> None:
    async def all_of(model: LanguageModel) -> list[Reply]:
        return await asyncio.gather(*(model.ask(QUESTION) for _ in range(8)))

    replies = provider.use(all_of)
    assert {len(json.loads(reply.content)["points_controle"]) for reply in replies} == {2}
    assert provider.calls() == 8


def test_a_check_with_a_valid_key_and_model_passes(provider: Provider) -> None:
    provider.use(lambda model: model.check())


@pytest.mark.parametrize(("key", "model"), [("sk-wrong", MODEL), (KEY, "gpt-unknown")])
def test_the_check_raises_a_permanent_error_for_a_wrong_key_or_model(
    simulator_url: str, key: str, model: str
) -> None:
    reset(simulator_url)

    @contextmanager
    def refused() -> Iterator[None]:
        with pytest.raises(PermanentError, match=r"\(check LLM_(API_KEY|MODEL)\)$") as caught:
            yield
        assert key not in str(caught.value)

    provider = replace(over_http(simulator_url), open=lambda: client(simulator_url, key, model))
    with refused():
        provider.ask()
    with refused():
        provider.use(lambda model: model.check())


@pytest.mark.parametrize(
    ("body", "is_cut", "refuses"), [("content_cut", True, False), ("refusal", False, True)]
)
def test_a_truncated_or_refused_answer_is_a_reply_with_its_usage(
    simulator_url: str, body: str, is_cut: bool, refuses: bool
) -> None:
    provider = over_http(simulator_url)
    provider.fail_all(TransientError("not this"), {"body": body})
    reply = provider.ask()
    assert (reply.is_cut, reply.refusal is not None) == (is_cut, refuses)
    assert reply.usage.prompt_tokens > 0


def test_a_hanging_provider_times_out_and_its_connection_closes(simulator_url: str) -> None:
    provider = replace(
        over_http(simulator_url), open=lambda: client(simulator_url, timeout_seconds=0.2)
    )
    provider.fail_all(TransientError("not this"), {"hang": True})
    assert isinstance(provider.error(), TransientError)


def test_the_check_of_the_fake_can_fail() -> None:
    fake = FakeLanguageModel()
    fake.refuse_everything(PermanentError("Wrong key."))
    with pytest.raises(PermanentError, match="Wrong key"):
        asyncio.run(fake.check())


def test_the_fake_follows_its_script_and_configured_failures() -> None:
    fake = FakeLanguageModel(
        [json_reply({"a": 1}), TransientError("two"), json_reply({"a": 3}, Usage(1, 2))]
    )
    fake.fail_once(TransientError("one"))
    outcomes: list[object] = []
    for _ in range(4):
        try:
            outcomes.append(json.loads(asyncio.run(fake.ask(QUESTION)).content))
        except TransientError as error:
            outcomes.append(str(error))
    assert outcomes == ["one", {"a": 1}, "two", {"a": 3}]
    with pytest.raises(AssertionError, match="more questions than it has replies"):
        asyncio.run(fake.ask(QUESTION))
    assert fake.calls == 5


def test_the_fake_counts_concurrent_questions() -> None:
    fake = FakeLanguageModel()

    async def three_pairs() -> None:
        for _ in range(3):
            await asyncio.gather(fake.ask(QUESTION), fake.ask(QUESTION))

    asyncio.run(three_pairs())
    assert (fake.max_concurrent, fake.calls) == (2, 6)


def test_the_honest_answer_is_based_on_the_prompt() -> None:
    step = StepInPrompt.of(QUESTION)
    assert (step.position, step.name, step.weight) == (3, "Découverte des besoins", 8)
    assert step.keywords == ("enregistré", "besoins")
    document = json.loads(
        step_answer(QUESTION, statuts=["ABSENT", "PRESENT"], commentaire_global="Vu.").content
    )
    absent, present = document["points_controle"]
    assert (document["score"], document["conforme"], document["commentaire_global"]) == (
        4,
        "PARTIEL",
        "Vu.",
    )
    assert (absent["statut"], absent["citations"]) == ("ABSENT", [])
    assert present["citations"] == [
        {
            "texte": "Quels sont vos besoins pour les lunettes et les dents ?",
            "minutage": "01:12",
            "minutage_secondes": 72.4,
            "speaker": "speaker_0",
            "recording_index": 0,
            "chunk_index": 1,
            "recording_date": "03/02/2026",
            "recording_time": "10:14",
            "recording_url": "N/A",
        }
    ]
    invented = json.loads(step_answer(QUESTION, quotation="Jamais dit ainsi.").content)
    assert invented["points_controle"][0]["citations"][0]["texte"] == "Jamais dit ainsi."


def test_the_honest_answer_quotes_the_tool_results() -> None:
    chunk = {
        "recording_index": 1,
        "chunk_index": 4,
        "minutage_secondes": 61.0,
        "recording_date": "03/02/2026",
        "recording_time": "10:14",
        "recording_url": "https://records.test/1",
        "full_text": "speaker_1: Oui.\nspeaker_0: Je note vos besoins tout de suite.",
    }
    result = Message(
        Role.TOOL, json.dumps({"chunks": [chunk], "truncated": False}), tool_call_id="call_1"
    )
    (cited,) = citations(replace(WITH_TOOLS, messages=(*WITH_TOOLS.messages, result)))
    assert (cited["texte"], cited["minutage"], cited["chunk_index"]) == (
        "Je note vos besoins tout de suite.",
        "01:01",
        4,
    )
