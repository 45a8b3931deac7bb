"""The model judges steps: tool rounds, repairs of invalid answers, gating, and storage of the results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from automation_pipeline.audits import events
from automation_pipeline.audits.models.audits import (
    AuditOptions,
    AuditRecord,
    AuditSummary,
    StepFinding,
    StepResult,
    Timeline,
    TranscriptSnapshot,
    UnjudgedStep,
)
from automation_pipeline.audits.models.chat import (
    LanguageModel,
    ModelOutputError,
    Question,
    Reply,
    ToolChoice,
    Usage,
)
from automation_pipeline.audits.models.configs import AuditStep
from automation_pipeline.audits.queries.audits import (
    find_reusable_audit,
    lock_running_audits,
    update_audit_rows,
)
from automation_pipeline.audits.queries.steps import (
    attempted_steps,
    copy_judged_steps,
    delete_steps,
    save_steps,
)
from automation_pipeline.audits.rules.answers import parse_answer, reconcile
from automation_pipeline.audits.rules.prompts import (
    StepPrompt,
    choose_transcript_mode,
    repair_question,
    step_question,
    tool_round,
    without_tools,
)
from automation_pipeline.audits.rules.tools import run_tool
from automation_pipeline.audits.rules.verdicts import gate, running_document, steps_sentence
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.coordination import (
    RateLimiter,
    Semaphore,
    rate_per_minute,
    wait_for_rate,
)
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.core.retry import Retrying
from automation_pipeline.storage.claims import DatabaseClaims
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time

RATE_LIMIT = "language-model"
TRUNCATED = "La réponse est coupée avant sa fin : sois plus bref."
# Characters reserved for returning an invalid answer, and the shortest useful tool result.
REPAIR_RESERVE, MIN_TOOL_RESULT = 10_000, 1_000


@dataclass(frozen=True)
class Judge:
    """The model with its limits over all processes: `semaphore` bounds concurrent calls, `limiter` calls
    per minute. `claims` prevents two processes from working on one audit."""

    model: LanguageModel
    limiter: RateLimiter
    semaphore: Semaphore
    claims: DatabaseClaims
    options: AuditOptions


def audit_key(audit_id: int) -> str:
    return f"audit-{audit_id}"


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
        finding=gated.finding,
        stats=gated.stats,
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
                    raise ModelOutputError(TRUNCATED)
                return parse_answer(reply.content)
            except ModelOutputError as error:
                problem = error.problem
                question = repair_question(question, reply.content, problem)
        raise PermanentError(f"The model gave no usable answer: {problem}")

    async def _answer(self, question: Question) -> tuple[Question, Reply]:
        """Answer tool calls until the model replies without one or reaches the limit of rounds."""
        for _ in range(self.judge.options.rounds - 1):
            if question.tool_choice is ToolChoice.NONE:
                break
            reply = await self._ask(question)
            if not reply.tool_calls:
                return question, reply
            requested = len(reply.content) + sum(len(call.arguments) for call in reply.tool_calls)
            left = self.judge.options.max_prompt_characters - question.characters - requested
            result_length = (left - min(REPAIR_RESERVE, left // 2)) // len(reply.tool_calls)
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
        longest = self.judge.options.max_prompt_characters
        if question.characters > longest:
            raise PermanentError(
                f"The prompt has {question.characters} characters, more than the {longest} allowed."
            )

        async def attempt() -> Reply:
            async with self.judge.semaphore.acquire():
                await wait_for_rate(
                    self.judge.limiter, RATE_LIMIT, rate_per_minute(self.judge.options.per_minute)
                )
                return await self.judge.model.ask(question)

        options = self.judge.options
        reply = await Retrying(options.attempts, options.backoff).call(attempt)
        self.usage += reply.usage
        if reply.refusal is not None:
            raise PermanentError(f"The model refuses to answer: {reply.refusal}")
        return reply


async def begin_analysis(
    found: AuditRecord, snapshot: TranscriptSnapshot, *, database: Database, judge: Judge
) -> AuditRecord:
    """Record that the analysis starts. Calls that do not fit into a prompt are read with tools. Judged
    steps stay judged unless the transcripts have changed."""
    mode = choose_transcript_mode(
        found.transcript_mode,
        (
            StepPrompt(config=found.config, step=step, timeline=snapshot.timeline)
            for step in found.config.steps
        ),
        judge.options,
    )
    found = replace(found, transcript_mode=mode)
    return await database.write_in_bulk(_record_analyses, (found, snapshot, judge.model.name))


def _record_analyses(
    session: Session, analyses: Sequence[tuple[AuditRecord, TranscriptSnapshot, str]]
) -> list[AuditRecord]:
    started = [_record_analysis(session, *analysis) for analysis in analyses]
    update_audit_rows(session, {found.summary.audit_id: columns for found, columns in started})
    return [found for found, _ in started]


def _record_analysis(
    session: Session, found: AuditRecord, snapshot: TranscriptSnapshot, model: str
) -> tuple[AuditRecord, Mapping[str, object]]:
    """Return the audit, and the columns to write."""
    audit, now = _with_judged_steps(session, found, snapshot.fingerprint), database_time(session)
    coverage, mode = snapshot.coverage, found.transcript_mode
    recordings, chunks = len(snapshot.timeline.recordings), snapshot.timeline.chunk_count
    columns = {
        "transcript_mode": mode,
        "recordings_count": recordings,
        "timeline_chunks": chunks,
        "timeline_fingerprint": snapshot.fingerprint,
        "coverage": coverage.document,
        "result_data": running_document(found),
    }
    enqueue(
        session,
        events.analysis_started(
            audit,
            coverage,
            {"recordings_count": recordings, "total_chunks": chunks},
            model,
            now,
        ),
    )
    message = (
        f"ANALYSE: {coverage.sentence}, {chunks} chunks, transcript by {mode}, "
        f"{steps_sentence(audit.done, audit.steps)} before"
    )
    write_notes(session, events.audit_note(audit, message))
    return replace(found, summary=audit), columns


def _with_judged_steps(session: Session, found: AuditRecord, fingerprint: str) -> AuditSummary:
    """Keep or copy the steps that earlier attempts judged on the same transcripts; delete others."""
    audit = found.summary
    if audit.done + audit.failed and found.timeline_fingerprint != fingerprint:
        delete_steps(session, audit.audit_id)
        audit = replace(audit, done=0, failed=0)
    if audit.done == 0 and found.version > 1:
        earlier = find_reusable_audit(session, found, fingerprint)
        if earlier is not None:
            audit = replace(audit, done=copy_judged_steps(session, audit.audit_id, earlier))
    return audit


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
    audit, judged, spent = found.summary, set[int](), dict[int, Usage]()
    if audit.done or audit.failed:
        with database.reading() as session:
            judged, spent = attempted_steps(session, audit.audit_id)
    so_far = replace(audit, done=len(judged), failed=0)

    def emit_started(step: AuditStep, session: Session) -> None:
        enqueue(session, [events.step_started(audit, step, database_time(session))])

    async def analyse(step: AuditStep) -> StepResult | UnjudgedStep:
        await database.write(partial(emit_started, step))
        result = await analyse_step(
            StepPrompt(
                config=found.config,
                step=step,
                timeline=snapshot.timeline,
                mode=found.transcript_mode,
                product=snapshot.product,
            ),
            judge=judge,
        )
        return replace(result, usage=result.usage + spent.get(step.position, Usage()))

    def write(results: Sequence[StepResult | UnjudgedStep]) -> None:
        nonlocal so_far
        failed = sum(isinstance(result, UnjudgedStep) for result in results)
        done = so_far.done + len(results) - failed
        so_far = replace(so_far, done=done, failed=so_far.failed + failed)
        database.write_in_bulk_soon(_store_results, _JudgedSteps(so_far, token, results))

    await process_concurrently(
        [step for step in found.config.steps if step.position not in judged],
        analyse,
        write,
        width=judge.options.steps_at_once,
    )


@dataclass(frozen=True)
class _JudgedSteps:
    """`audit` has the counters that include the results."""

    audit: AuditSummary
    token: int
    results: Sequence[StepResult | UnjudgedStep]


def _store_results(session: Session, judged: Sequence[_JudgedSteps]) -> list[TransientError | None]:
    now = database_time(session)
    tokens = {each.audit.audit_id: each.token for each in judged}
    held = lock_running_audits(session, tokens, now, tokens=tokens)
    kept = [each for each in judged if each.audit.audit_id in held]
    results = [(each.audit.audit_id, result) for each in kept for result in each.results]
    if results:
        save_steps(session, results, now)
    for each in kept:
        messages = [
            f"Step {result.step.position} could not be judged: {result.error}"
            for result in each.results
            if isinstance(result, UnjudgedStep)
        ]
        write_notes(
            session,
            *[events.audit_note(each.audit, message, level="error") for message in messages],
        )
        enqueue(
            session,
            [
                *[events.step_ended(each.audit, result, now) for result in each.results],
                events.progress(each.audit, "analysis", now),
            ],
        )
    return [
        None
        if each in kept
        else TransientError(
            f"Audit {each.audit.audit_id} has passed on to another worker, or has ended."
        )
        for each in judged
    ]
