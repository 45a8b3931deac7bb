"""Have the model judge one step: bad answers are sent back, and only what is proven is kept."""

from dataclasses import dataclass, field

from automation_pipeline.audits.domain.answer import BadAnswerError, read_answer
from automation_pipeline.audits.domain.chat import Question, Reply, ToolCall, ToolChoice, Usage
from automation_pipeline.audits.domain.evidence import gate
from automation_pipeline.audits.domain.findings import StepFinding
from automation_pipeline.audits.domain.prompt import StepTask, repair, step_question, tool_round, without_tools
from automation_pipeline.audits.domain.reconcile import reconcile
from automation_pipeline.audits.domain.step_result import StepResult, UnjudgedStep
from automation_pipeline.audits.domain.timeline import Timeline
from automation_pipeline.audits.domain.tools import run_tool
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.stages.ask_model import ask_model
from automation_pipeline.core.errors import AutomationError, GroundError, PermanentError, sentence_of

CUT = "La réponse est coupée avant sa fin : sois plus bref."
# Kept free in the prompt for sending back a bad answer, and the least that a tool's result is worth.
ROOM_FOR_REPAIRS, LEAST_ROOM = 10_000, 1_000


async def analyse_step(task: StepTask, *, judge: Judge) -> StepResult | UnjudgedStep:
    """A model that is away, refuses or gives no usable answer leaves the step unjudged. GroundError: there is no result
    yet."""
    talk = _Talk(judge, task.timeline)
    try:
        finding = await talk.finding(step_question(task, judge.knobs.excerpt))
    except GroundError:
        raise
    except AutomationError as error:
        return UnjudgedStep(step=task.step, error=sentence_of(error), usage=talk.usage)
    reconciled = reconcile(finding, task.step.control_points)
    gated = gate(reconciled.finding, task.step.weight, task.timeline, judge.knobs.gating)
    missing, unknown = reconciled.missing, reconciled.unknown
    return StepResult(step=task.step, gated=gated, usage=talk.usage, mode=task.mode, missing=missing, unknown=unknown)


@dataclass
class _Talk:
    """One conversation. `usage` adds up over every reply, the useless ones too."""

    judge: Judge
    timeline: Timeline
    usage: Usage = field(default_factory=Usage)

    async def finding(self, question: Question) -> StepFinding:
        problem = ""
        for _ in range(1 + self.judge.knobs.repairs):
            question, reply = await self._answer(question)
            try:
                if reply.is_cut:
                    raise BadAnswerError(CUT)
                return read_answer(reply.content)
            except BadAnswerError as bad:
                problem = bad.problem
                question = repair(question, reply.content, problem)
        raise PermanentError(f"The model gave no usable answer: {problem}")

    async def _answer(self, question: Question) -> tuple[Question, Reply]:
        """What the model says when it has used its tools for as long as it may."""
        for _ in range(self.judge.knobs.rounds - 1):
            if question.tool_choice is ToolChoice.NONE:
                break
            reply = await self._ask(question)
            room = self._room(question, reply)
            if not reply.tool_calls:
                return question, reply
            if room < LEAST_ROOM:
                break
            question = tool_round(question, reply, [(call, self._use(call, room)) for call in reply.tool_calls])
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
        left = self.judge.knobs.max_prompt_characters - question.characters - asked
        return (left - min(ROOM_FOR_REPAIRS, left // 2)) // max(1, len(reply.tool_calls))

    def _use(self, call: ToolCall, room: int) -> str:
        return run_tool(call, self.timeline, room)
