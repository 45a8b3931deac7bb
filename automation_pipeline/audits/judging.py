"""The model judges steps: prompts, tool rounds, repairs of invalid answers, gating, and storage of results."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from automation_pipeline.audits import events
from automation_pipeline.audits.events import audit_note
from automation_pipeline.audits.models.audits import (
    AuditSummary,
    Timeline,
    TranscriptMode,
    coverage_document,
    steps_sentence,
)
from automation_pipeline.audits.models.chat import Question, Reply, ToolChoice, Usage
from automation_pipeline.audits.models.configs import AuditStep
from automation_pipeline.audits.models.findings import StepFinding, StepResult, UnjudgedStep
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.queries.audits import (
    AuditRecord,
    find_reusable_audit,
    lock_running_audit,
    triggered_by,
    update_audit_row,
)
from automation_pipeline.audits.queries.steps import (
    copy_judged_steps,
    delete_steps,
    judged_positions,
    missing_steps,
    save_step,
)
from automation_pipeline.audits.queries.transcripts import TranscriptSnapshot
from automation_pipeline.audits.rules.answers import InvalidAnswerError, parse_answer, reconcile
from automation_pipeline.audits.rules.prompts import (
    StepPrompt,
    choose_transcript_mode,
    repair_question,
    step_question,
    tool_round,
    without_tools,
)
from automation_pipeline.audits.rules.results import running_document
from automation_pipeline.audits.rules.tools import run_tool
from automation_pipeline.audits.rules.verdicts import gate
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.coordination import rate_per_minute, wait_for_rate
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.core.retry import Retrying
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes

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


async def begin_analysis(
    found: AuditRecord, snapshot: TranscriptSnapshot, *, database: Database, judge: Judge
) -> AuditRecord:
    """Record that the analysis starts. Calls that do not fit into a prompt are read with tools. Judged
    steps stay judged unless the transcripts have changed."""
    mode = _transcript_mode(found, snapshot.timeline, judge)
    return await database.write(
        partial(_record_analysis, replace(found, transcript_mode=mode), snapshot, judge.model.name)
    )


def _record_analysis(
    found: AuditRecord, snapshot: TranscriptSnapshot, model: str, session: Session
) -> AuditRecord:
    timeline, now = snapshot.timeline, database_time(session)
    found = _with_judged_steps(found, snapshot.fingerprint, session)
    audit = found.summary
    trigger = triggered_by(session, audit.audit_id)
    about = {"audit_id": audit.tracking_id, **trigger}
    recordings, chunks = len(timeline.recordings), timeline.chunk_count
    approach = {"use_rlm": found.use_rlm, "transcript_mode": found.transcript_mode}
    values = {
        "transcript_mode": found.transcript_mode,
        "recordings_count": recordings,
        "timeline_chunks": chunks,
        "timeline_fingerprint": snapshot.fingerprint,
        "coverage": coverage_document(snapshot.coverage),
        "result_data": running_document(about, found.started_at, approach),
    }
    update_audit_row(session, audit.audit_id, values)
    enqueue(session, [
        events.transcription_check(audit, snapshot.coverage, now),
        *events.analysis_started(audit, recordings, chunks, model, now),
    ])  # fmt: skip
    message = (
        f"ANALYSE: {snapshot.coverage.sentence}, {chunks} chunks, transcript by {found.transcript_mode}, "
        f"{steps_sentence(audit.done, audit.steps)} before"
    )
    write_notes(session, audit_note(audit, message))
    return found


def _with_judged_steps(found: AuditRecord, fingerprint: str, session: Session) -> AuditRecord:
    """Keep or copy the steps that earlier attempts judged on the same transcripts; delete others."""
    audit, adopted = found.summary, 0
    if audit.done + audit.failed and found.timeline_fingerprint != fingerprint:
        delete_steps(session, audit.audit_id)
        audit = replace(audit, done=0, failed=0)
    if audit.done == 0 and found.version > 1:
        earlier = find_reusable_audit(session, found, fingerprint)
        adopted = 0 if earlier is None else copy_judged_steps(session, audit.audit_id, earlier)
    return replace(found, summary=replace(audit, done=audit.done + adopted))


def _transcript_mode(found: AuditRecord, timeline: Timeline, judge: Judge) -> TranscriptMode:
    tasks = (
        StepPrompt(config=found.config, step=step, timeline=timeline) for step in found.config.steps
    )
    return choose_transcript_mode(found.transcript_mode, tasks, judge.options)


async def judge_steps(
    found: AuditRecord,
    snapshot: TranscriptSnapshot,
    token: int,
    *,
    database: Database,
    judge: Judge,
) -> None:
    """Judge the missing steps under the fence `token`.

    Raises TransientError, and writes nothing, when the claim is lost or the audit has ended.
    """
    audit = found.summary

    async def analyse(step: AuditStep) -> StepResult | UnjudgedStep:
        await database.write(partial(emit_started, step))
        timeline, mode = snapshot.timeline, found.transcript_mode
        task = StepPrompt(
            config=found.config, step=step, timeline=timeline, mode=mode, product=snapshot.product
        )
        result = await analyse_step(task, judge=judge)
        return (
            replace(result, usage=result.usage + spent[step.position])
            if step.position in spent
            else result
        )

    def emit_started(step: AuditStep, session: Session) -> None:
        enqueue(session, [events.step_started(audit, step, database_time(session))])

    judged, spent = _earlier_attempts(audit, database)
    so_far = replace(audit, done=len(judged), failed=0)

    def write(results: Sequence[StepResult | UnjudgedStep]) -> None:
        nonlocal so_far
        errors = sum(isinstance(result, UnjudgedStep) for result in results)
        judged = so_far.done + len(results) - errors
        then = replace(so_far, done=judged, failed=so_far.failed + errors)
        database.write_soon(partial(save, results, then))
        so_far = then

    def save(
        results: Sequence[StepResult | UnjudgedStep], then: AuditSummary, session: Session
    ) -> None:
        now = database_time(session)
        if not lock_running_audit(session, audit.audit_id, token, now):
            raise TransientError(
                f"Audit {audit.audit_id} has passed on to another worker, or has ended."
            )
        for result in results:
            save_step(session, audit.audit_id, result, now)
            if isinstance(result, UnjudgedStep):
                message = f"Step {result.step.position} could not be judged: {result.error}"
                write_notes(session, audit_note(audit, message, level="error"))
        ended = [events.step_ended(audit, result, now) for result in results]
        enqueue(session, [*ended, events.progress(then, "analysis", now)])

    todo = [step for step in found.config.steps if step.position not in judged]
    await process_concurrently(todo, analyse, write, width=judge.options.steps_at_once)


def _earlier_attempts(audit: AuditSummary, database: Database) -> tuple[set[int], dict[int, Usage]]:
    """The positions that earlier attempts judged, and their usage for the other steps. The caller has
    claimed the audit."""
    if audit.done == audit.failed == 0:
        return set(), {}
    with database.reading() as session:
        spent = {step.position: step.usage for step in missing_steps(session, audit.audit_id)}
        return judged_positions(session, audit.audit_id), spent
