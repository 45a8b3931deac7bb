"""Analysis of one step by the model: tools, limits, refusals and gating."""

import pytest

from automation_pipeline.audits.models.audits import GatingOptions
from automation_pipeline.audits.models.chat import Question, Reply, Role, ToolChoice
from automation_pipeline.core.errors import InfrastructureError, PermanentError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.llm import USAGE, FakeLanguageModel, step_answer, wish

READ = {
    "chunks": [{"recording_index": 0, "chunk_index": 0}],
    "includeNeighbors": 0,
    "maxChars": None,
}


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


def reads_then_answers(question: Question) -> Reply:
    if question.tool_choice is ToolChoice.REQUIRED:
        return wish("searchTranscript", query="enregistré", maxResults=None, minTermLength=None)
    if question.messages[-1].role is Role.TOOL and "full_text" not in question.messages[-1].content:
        return wish("getTranscriptChunks", "call_2", **READ)
    return step_answer(question)


def test_with_tools_the_transcript_is_not_in_the_prompt_and_still_quoted(bench: Bench) -> None:
    bench.model = FakeLanguageModel(reads_then_answers)
    bench.sell("1900417")
    status = bench.audit("1900417", bench.configure(steps=1), use_rlm=True)
    assert status.score_percentage == 100.0
    assert "TRANSCRIPTION" not in bench.model.asked[0].messages[1].content
    assert bench.row().transcript_mode == "tools"
    assert bench.row().total_tokens == 3 * USAGE.total_tokens
    [step] = bench.steps()
    assert {cited.call_id for point in step.finding.points for cited in point.citations} == {
        "190041701"
    }


def test_invented_quotations_are_gated_with_tools_too(bench: Bench) -> None:
    bench.model = FakeLanguageModel(
        lambda question: (
            reads_then_answers(question)
            if question.tool_choice is ToolChoice.REQUIRED
            else step_answer(question, quotation="cela n'a jamais été dit")
        )
    )
    bench.sell("1900417")
    assert bench.audit("1900417", bench.configure(steps=1), use_rlm=True).score_percentage == 0.0


def test_the_rounds_are_bounded_and_the_last_one_has_no_tools(bench: Bench) -> None:
    search = {"query": "bonjour", "maxResults": None, "minTermLength": None}
    bench.model = FakeLanguageModel(
        lambda question: (
            step_answer(question)
            if question.tool_choice is ToolChoice.NONE
            else wish("searchTranscript", f"call_{len(question.messages)}", **search)
        )
    )
    bench.set_options(rounds=4)
    bench.sell("1900417")
    bench.audit("1900417", bench.configure(steps=1), use_rlm=True)
    choices = [question.tool_choice for question in bench.model.asked]
    assert choices == [ToolChoice.REQUIRED, ToolChoice.AUTO, ToolChoice.AUTO, ToolChoice.NONE]


def test_a_call_of_three_hours_is_read_with_tools_and_never_exceeds_the_limit(bench: Bench) -> None:
    """Even without a request for tools, and with a model that reads every chunk."""
    everything = {
        "chunks": [{"recording_index": 0, "chunk_index": index} for index in range(20)],
        "includeNeighbors": 2,
        "maxChars": 80_000,
    }

    def greedy(question: Question) -> Reply:
        if question.tool_choice is ToolChoice.NONE:
            return step_answer(question)
        return wish("getTranscriptChunks", f"call_{len(question.messages)}", **everything)

    bench.model = FakeLanguageModel(greedy)
    bench.set_options(max_prompt_characters=60_000)
    bench.sell(
        "1900417", text="speaker_0: " + "Bonjour, cet appel est enregistré. " * 20, times=1080
    )
    status = bench.audit("1900417", bench.configure(steps=2))
    assert (status.status, status.failed) == ("completed", 0)
    assert bench.row().transcript_mode == "tools"
    assert bench.row().use_rlm is False
    assert max(question.characters for question in bench.model.asked) <= 60_000
    assert bench.model.calls > 4


def test_a_prompt_that_is_too_long_by_itself_is_not_sent(bench: Bench) -> None:
    bench.set_options(max_prompt_characters=1_000)
    bench.sell("1900417")
    status = bench.audit("1900417", bench.configure(steps=1))
    assert status.error is not None
    assert "more than the 1000 allowed" in status.error
    assert bench.model.calls == 0


def test_a_refusal_ends_the_step_and_its_tokens_count(bench: Bench) -> None:
    bench.model = FakeLanguageModel(lambda _: Reply("", USAGE, refusal="I cannot judge people."))
    bench.sell("1900417")
    status = bench.audit("1900417", bench.configure(steps=1))
    refusal = "The model refuses to answer: I cannot judge people."
    assert status.error == f"Audit incomplete: 0 of 1 steps judged: {refusal}"
    assert bench.row().total_tokens == USAGE.total_tokens


def test_a_truncated_answer_is_requested_again(bench: Bench) -> None:
    cut = [Reply('{"traite": tr', USAGE, is_cut=True)]
    bench.model = FakeLanguageModel(lambda question: cut.pop() if cut else step_answer(question))
    bench.sell("1900417")
    assert bench.audit("1900417", bench.configure(steps=1)).score_percentage == 100.0
    assert "coupée" in bench.model.asked[-1].messages[-1].content


def test_without_gating_an_invented_quotation_stands(bench: Bench) -> None:
    bench.set_options(gating=GatingOptions(enabled=False))
    bench.model = FakeLanguageModel(
        lambda asked: step_answer(asked, quotation="je jure que cela a été dit")
    )
    bench.sell("1900417")
    assert bench.audit("1900417", bench.configure(steps=1)).score_percentage == 100.0


def test_a_permanent_error_is_not_retried(bench: Bench) -> None:
    bench.model.fail_once(PermanentError("The model is unknown (check LLM_MODEL)."))
    bench.sell("1900417")
    assert bench.audit("1900417", bench.configure(steps=1)).status == "incomplete"
    assert bench.model.calls == 1


def test_an_infrastructure_error_leaves_the_step_for_the_next_attempt(bench: Bench) -> None:
    bench.set_options(attempts=1)
    bench.model.fail_once(InfrastructureError("Redis does not answer: it is away."))
    bench.sell("1900417")
    config = bench.configure(steps=1)
    with pytest.raises(InfrastructureError):
        bench.audit("1900417", config)
    assert bench.steps() == []
    assert bench.audit("1900417", config).status == "completed"
