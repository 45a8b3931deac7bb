"""One step judged by the model: rate limit, tool rounds, repairs of invalid answers, gating."""

import asyncio
from dataclasses import dataclass, field

from automation_pipeline.audits.models.chat import Question, Reply, ToolCall, ToolChoice, Usage
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
from automation_pipeline.core.coordination import Rate, reserve
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    PermanentError,
    sentence_of,
)
from automation_pipeline.core.retry import Retrying

RATE_LIMIT = "language-model"
# A call may reach the provider a little after its turn: a hundredth to spare keeps any minute
# within the cap.
RATE_PERIOD_SECONDS = 60.6


async def ask_model(question: Question, judge: Judge) -> Reply:
    """PermanentError, and no call at all, for a prompt that is longer than the limit."""
    longest = judge.options.max_prompt_characters
    if question.characters > longest:
        raise PermanentError(
            f"The prompt has {question.characters} characters, more than the {longest} allowed."
        )

    async def attempt() -> Reply:
        async with judge.semaphore.acquire():
            wait = await reserve(
                judge.limiter, RATE_LIMIT, Rate(judge.options.per_minute, RATE_PERIOD_SECONDS)
            )
            await asyncio.sleep(wait or 0.0)
            return await judge.model.ask(question)

    return await Retrying(judge.options.attempts, judge.options.backoff).call(attempt)


TRUNCATED = "La réponse est coupée avant sa fin : sois plus bref."
# Kept free in the prompt for sending back a bad answer, and the least that a tool's result is
# worth.
REPAIR_RESERVE, MIN_TOOL_RESULT = 10_000, 1_000


async def analyse_step(task: StepPrompt, *, judge: Judge) -> StepResult | UnjudgedStep:
    """A model that is away, refuses or gives no usable answer leaves the step unjudged.
    GroundError: there is no result yet."""
    talk = _Conversation(judge, task.timeline)
    try:
        finding = await talk.finding(step_question(task, judge.options.excerpt))
    except InfrastructureError:
        raise
    except AutomationError as error:
        return UnjudgedStep(step=task.step, error=sentence_of(error), usage=talk.usage)
    reconciled = reconcile(finding, task.step.control_points)
    gated = gate(reconciled.finding, task.step.weight, task.timeline, judge.options.gating)
    missing, unknown = reconciled.missing, reconciled.unknown
    return StepResult(
        step=task.step,
        gated=gated,
        usage=talk.usage,
        mode=task.mode,
        missing=missing,
        unknown=unknown,
    )


@dataclass
class _Conversation:
    """One conversation. `usage` adds up over every reply, the useless ones too."""

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
        """What the model says when it has used its tools for as long as it may."""
        for _ in range(self.judge.options.rounds - 1):
            if question.tool_choice is ToolChoice.NONE:
                break
            reply = await self._ask(question)
            room = self._room(question, reply)
            if not reply.tool_calls:
                return question, reply
            if room < MIN_TOOL_RESULT:
                break
            question = tool_round(
                question, reply, [(call, self._use(call, room)) for call in reply.tool_calls]
            )
        question = without_tools(question)
        return question, await self._ask(question)

    async def _ask(self, question: Question) -> Reply:
        reply = await ask_model(question, self.judge)
        self.usage += reply.usage
        if reply.refusal is not None:
            raise PermanentError(f"The model refuses to answer: {reply.refusal}")
        return reply

    def _room(self, question: Question, reply: Reply) -> int:
        """How long each tool's result may be."""
        asked = len(reply.content) + sum(len(call.arguments) for call in reply.tool_calls)
        left = self.judge.options.max_prompt_characters - question.characters - asked
        return (left - min(REPAIR_RESERVE, left // 2)) // max(1, len(reply.tool_calls))

    def _use(self, call: ToolCall, room: int) -> str:
        return run_tool(call, self.timeline, room)
