"""Analysis of one step by the model: rate limit, tool rounds, repairs of invalid answers, gating."""

from dataclasses import dataclass, field

from automation_pipeline.audits.models.chat import Question, Reply, ToolChoice, Usage
from automation_pipeline.audits.models.findings import StepFinding, StepResult, UnjudgedStep
from automation_pipeline.audits.models.timelines import Timeline
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.rules.answers import InvalidAnswerError, parse_answer, reconcile
from automation_pipeline.audits.rules.gating import gate
from automation_pipeline.audits.rules.prompts import (
    StepPrompt,
    repair_question,
    step_question,
    tool_round,
    without_tools,
)
from automation_pipeline.audits.rules.tools import run_tool
from automation_pipeline.core.coordination import rate_per_minute, wait_for_rate
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    PermanentError,
    sentence_of,
)
from automation_pipeline.core.retry import Retrying

RATE_LIMIT = "language-model"


async def ask_model(question: Question, judge: Judge) -> Reply:
    """Ask the model, with retries. Raises PermanentError without a call if the prompt is too long."""
    longest = judge.options.max_prompt_characters
    if question.characters > longest:
        raise PermanentError(
            f"The prompt has {question.characters} characters, more than the {longest} allowed."
        )

    async def attempt() -> Reply:
        async with judge.semaphore.acquire():
            rate = rate_per_minute(judge.options.per_minute)
            await wait_for_rate(judge.limiter, RATE_LIMIT, rate)
            return await judge.model.ask(question)

    return await Retrying(judge.options.attempts, judge.options.backoff).call(attempt)


TRUNCATED = "La réponse est coupée avant sa fin : sois plus bref."
# Characters reserved for returning an invalid answer, and the shortest useful tool result.
REPAIR_RESERVE, MIN_TOOL_RESULT = 10_000, 1_000


async def analyse_step(task: StepPrompt, *, judge: Judge) -> StepResult | UnjudgedStep:
    """Judge the step. A model that fails, refuses or gives no usable answer leaves it unjudged.

    Raises InfrastructureError when there is no result yet.
    """
    conversation = _Conversation(judge, task.timeline)
    try:
        finding = await conversation.finding(step_question(task, judge.options.excerpt))
    except InfrastructureError:
        raise
    except AutomationError as error:
        return UnjudgedStep(step=task.step, error=sentence_of(error), usage=conversation.usage)
    reconciled = reconcile(finding, task.step.control_points)
    gated = gate(reconciled.finding, task.step.weight, task.timeline, judge.options.gating)
    return StepResult(
        step=task.step,
        gated=gated,
        usage=conversation.usage,
        mode=task.mode,
        missing=reconciled.missing,
        unknown=reconciled.unknown,
    )


@dataclass
class _Conversation:
    """One conversation with the model. `usage` adds up every reply, including invalid ones."""

    judge: Judge
    timeline: Timeline
    usage: Usage = field(default_factory=Usage)

    async def finding(self, question: Question) -> StepFinding:
        problem = ""
        for _ in range(1 + self.judge.options.repairs):
            question, reply = await self._answer(question)
            try:
                if reply.is_cut:
                    raise InvalidAnswerError(TRUNCATED)
                return parse_answer(reply.content)
            except InvalidAnswerError as bad:
                problem = bad.problem
                question = repair_question(question, reply.content, problem)
        raise PermanentError(f"The model gave no usable answer: {problem}")

    async def _answer(self, question: Question) -> tuple[Question, Reply]:
        """Answer tool calls until the model replies without one or reaches the limit of rounds."""
        for _ in range(self.judge.options.rounds - 1):
            if question.tool_choice is ToolChoice.NONE:
                break
            reply = await self._ask(question)
            result_length = self._tool_result_length(question, reply)
            if not reply.tool_calls:
                return question, reply
            if result_length < MIN_TOOL_RESULT:
                break
            question = tool_round(
                question,
                reply,
                [(call, run_tool(call, self.timeline, result_length)) for call in reply.tool_calls],
            )
        question = without_tools(question)
        return question, await self._ask(question)

    async def _ask(self, question: Question) -> Reply:
        reply = await ask_model(question, self.judge)
        self.usage += reply.usage
        if reply.refusal is not None:
            raise PermanentError(f"The model refuses to answer: {reply.refusal}")
        return reply

    def _tool_result_length(self, question: Question, reply: Reply) -> int:
        """How many characters the result of each tool call may have."""
        asked = len(reply.content) + sum(len(call.arguments) for call in reply.tool_calls)
        left = self.judge.options.max_prompt_characters - question.characters - asked
        return (left - min(REPAIR_RESERVE, left // 2)) // max(1, len(reply.tool_calls))
