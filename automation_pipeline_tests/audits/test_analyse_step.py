"""Analysis of one step by the model: tools, limits, refusals and gating."""

import pytest

from automation_pipeline.audits.models.audits import AuditOptions, GatingOptions
from automation_pipeline.audits.models.chat import Question, Reply, Role, ToolChoice
from automation_pipeline.core.errors import InfrastructureError, PermanentError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import (
    USAGE,
    FakeLanguageModel,
    step_answer,
    tool_call_reply,
)

READ = {
    "chunks": [{"recording_index": 0, "chunk_index": 0}],
    "includeNeighbors": 0,
    "maxChars": None,
}


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(database, clock)


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


def reads_then_answers(question: Question) -> Reply:
    if question.tool_choice is ToolChoice.REQUIRED:
        return tool_call_reply(
            "searchTranscript", query="enregistré", maxResults=None, minTermLength=None
        )
    if question.messages[-1].role is Role.TOOL and "full_text" not in question.messages[-1].content:
        return tool_call_reply("getTranscriptChunks", "call_2", **READ)
    return step_answer(question)


def test_with_tools_the_transcript_is_not_in_the_prompt_and_still_quoted(
    harness: AuditHarness,
) -> None:
    harness.model = FakeLanguageModel(reads_then_answers)
    harness.sell("1900417")
    audit = harness.audit("1900417", harness.configure(steps=1), use_rlm=True)
    assert audit.score_percentage == 100.0
    assert "TRANSCRIPTION" not in harness.model.questions[0].messages[1].content
    assert harness.row().transcript_mode == "tools"
    assert harness.row().total_tokens == 3 * USAGE.total_tokens
    [step] = harness.steps()
    assert {cited.call_id for point in step.finding.points for cited in point.citations} == {
        "190041701"
    }


def test_invented_quotations_are_gated_with_tools_too(harness: AuditHarness) -> None:
    harness.model = FakeLanguageModel(
        lambda question: (
            reads_then_answers(question)
            if question.tool_choice is ToolChoice.REQUIRED
            else step_answer(question, quotation="cela n'a jamais été dit")
        )
    )
    harness.sell("1900417")
    assert (
        harness.audit("1900417", harness.configure(steps=1), use_rlm=True).score_percentage == 0.0
    )


def test_the_rounds_are_bounded_and_the_last_one_has_no_tools(harness: AuditHarness) -> None:
    search = {"query": "bonjour", "maxResults": None, "minTermLength": None}
    harness.model = FakeLanguageModel(
        lambda question: (
            step_answer(question)
            if question.tool_choice is ToolChoice.NONE
            else tool_call_reply("searchTranscript", f"call_{len(question.messages)}", **search)
        )
    )
    harness.sell("1900417")
    config = harness.configure(steps=1)
    for rounds in (4, AuditOptions.rounds):
        harness.set_options(rounds=rounds)
        harness.model.questions.clear()
        harness.audit("1900417", config, f"audit with {rounds} rounds", use_rlm=True)
        choices = [question.tool_choice for question in harness.model.questions]
        optional = [ToolChoice.AUTO] * (rounds - 2)
        assert choices == [ToolChoice.REQUIRED, *optional, ToolChoice.NONE]
    assert rounds == 8


def test_the_results_of_tools_share_the_rest_of_the_prompt(harness: AuditHarness) -> None:
    read = tool_call_reply("getTranscriptChunks", **READ).tool_calls

    def answer(question: Question) -> Reply:
        if question.tool_choice is ToolChoice.REQUIRED:
            return Reply("Je lis.", USAGE, read * 2)
        return step_answer(question)

    harness.model = FakeLanguageModel(answer)
    harness.sell("1900417", text="speaker_0: " + "Bonjour, cet appel est note. " * 3_000)
    config = harness.configure(steps=1)
    harness.audit("1900417", config, "first", use_rlm=True)
    first = harness.model.questions[0].characters
    requested = len("Je lis.") + 2 * len(read[0].arguments)

    def read_characters(left: int) -> list[int]:
        """The lengths of the results if there are `left` characters for results and repairs."""
        harness.set_options(max_prompt_characters=first + requested + left)
        harness.model.questions.clear()
        harness.audit("1900417", config, f"audit with {left}", use_rlm=True)
        last = harness.model.questions[-1]
        return [len(message.content) for message in last.messages if message.role is Role.TOOL]

    # 10,000 characters are for repairs, or half of a smaller rest. A result of less than 1,000 characters
    # is not read. The result is one character shorter, because it reserves one for "false".
    assert read_characters(50_000) == [19_999, 19_999]
    assert read_characters(10_000) == [2_499, 2_499]
    assert read_characters(3_999) == [999, 999]
    assert read_characters(3_998) == []


def test_a_call_of_three_hours_is_read_with_tools_and_never_exceeds_the_limit(
    harness: AuditHarness,
) -> None:
    """Even without a request for tools, and with a model that reads every chunk."""
    everything = {
        "chunks": [{"recording_index": 0, "chunk_index": index} for index in range(20)],
        "includeNeighbors": 2,
        "maxChars": 80_000,
    }

    def greedy(question: Question) -> Reply:
        if question.tool_choice is ToolChoice.NONE:
            return step_answer(question)
        return tool_call_reply(
            "getTranscriptChunks", f"call_{len(question.messages)}", **everything
        )

    harness.model = FakeLanguageModel(greedy)
    harness.set_options(max_prompt_characters=60_000)
    harness.sell(
        "1900417", text="speaker_0: " + "Bonjour, cet appel est enregistré. " * 20, times=1080
    )
    audit = harness.audit("1900417", harness.configure(steps=2))
    assert (audit.status, audit.failed) == ("completed", 0)
    assert harness.row().transcript_mode == "tools"
    assert harness.row().use_rlm is False
    assert max(question.characters for question in harness.model.questions) <= 60_000
    assert harness.model.calls > 4


def test_a_prompt_that_is_too_long_by_itself_is_not_sent(harness: AuditHarness) -> None:
    harness.set_options(max_prompt_characters=1_000)
    harness.sell("1900417")
    audit = harness.audit("1900417", harness.configure(steps=1))
    assert audit.error is not None
    assert "more than the 1000 allowed" in audit.error
    assert harness.model.calls == 0


def test_a_refusal_ends_the_step_and_its_tokens_count(harness: AuditHarness) -> None:
    harness.model = FakeLanguageModel(lambda _: Reply("", USAGE, refusal="I cannot judge people."))
    harness.sell("1900417")
    audit = harness.audit("1900417", harness.configure(steps=1))
    refusal = "The model refuses to answer: I cannot judge people."
    assert audit.error == f"Audit incomplete: 0 of 1 steps judged: {refusal}"
    assert harness.row().total_tokens == USAGE.total_tokens


def test_a_truncated_answer_is_requested_again(harness: AuditHarness) -> None:
    cut = [Reply('{"traite": tr', USAGE, is_cut=True)]
    harness.model = FakeLanguageModel(lambda question: cut.pop() if cut else step_answer(question))
    harness.sell("1900417")
    assert harness.audit("1900417", harness.configure(steps=1)).score_percentage == 100.0
    assert "coupée" in harness.model.questions[-1].messages[-1].content


def test_without_gating_an_invented_quotation_is_kept(harness: AuditHarness) -> None:
    harness.set_options(gating=GatingOptions(enabled=False))
    harness.model = FakeLanguageModel(
        lambda question: step_answer(question, quotation="je jure que cela a été dit")
    )
    harness.sell("1900417")
    assert harness.audit("1900417", harness.configure(steps=1)).score_percentage == 100.0


def test_a_permanent_error_is_not_retried(harness: AuditHarness) -> None:
    harness.model.fail_once(PermanentError("The model is unknown (check LLM_MODEL)."))
    harness.sell("1900417")
    assert harness.audit("1900417", harness.configure(steps=1)).status == "incomplete"
    assert harness.model.calls == 1


def test_an_infrastructure_error_leaves_the_step_for_the_next_attempt(
    harness: AuditHarness,
) -> None:
    harness.set_options(attempts=1)
    harness.model.fail_once(InfrastructureError("Redis does not answer: it is away."))
    harness.sell("1900417")
    config = harness.configure(steps=1)
    with pytest.raises(InfrastructureError):
        harness.audit("1900417", config)
    assert harness.steps() == []
    assert harness.audit("1900417", config).status == "completed"
