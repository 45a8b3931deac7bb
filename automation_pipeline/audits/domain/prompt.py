"""The question put to the model about one step, and what is added to it when the model answers badly or uses tools."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from automation_pipeline.audits.domain import rules_text
from automation_pipeline.audits.domain.answer import ANSWER
from automation_pipeline.audits.domain.chat import Message, Question, Reply, Role, ToolCall, ToolChoice
from automation_pipeline.audits.domain.config import AuditConfig, AuditStep
from automation_pipeline.audits.domain.excerpt import excerpt
from automation_pipeline.audits.domain.knobs import ExcerptRules
from automation_pipeline.audits.domain.modes import TranscriptMode
from automation_pipeline.audits.domain.timeline import Timeline
from automation_pipeline.audits.domain.timeline_text import defused, one_line, timeline_text
from automation_pipeline.audits.domain.tools import TOOLS

LONGEST_PREVIOUS = 1_200
LONGEST_WRONG_ANSWER = 4_000


@dataclass(frozen=True, kw_only=True)
class StepTask:
    """One step to judge. On reruns: the user's `instructions`, and what was found before (`previous`). `product`: what
    was sold, as far as it is known. To judge one control point, give a step that has no other."""

    config: AuditConfig
    step: AuditStep
    timeline: Timeline
    mode: TranscriptMode = TranscriptMode.PROMPT
    instructions: str | None = None
    previous: str | None = None
    product: str | None = None


def step_question(task: StepTask, excerpts: ExcerptRules) -> Question:
    blocks = (_calls(task, excerpts), _product(task), _step(task), _rules(task.mode), _closing(task.step))
    user = Message(Role.USER, "\n\n".join(block for block in blocks if block))
    system = task.config.system_prompt or rules_text.DEFAULT_SYSTEM
    if task.mode is TranscriptMode.PROMPT:
        return Question((Message(Role.SYSTEM, system), user), ANSWER)
    system = f"{system}\n\n{rules_text.TOOL_RULES}"
    return Question((Message(Role.SYSTEM, system), user), ANSWER, TOOLS, ToolChoice.REQUIRED)


def repair(question: Question, reply_content: str, problem: str) -> Question:
    """The same question with the bad answer and what is wrong with it; no more tools are to be used."""
    wrong = reply_content[:LONGEST_WRONG_ANSWER] or "(réponse vide)"
    told = (
        f"Ta réponse ne peut pas être lue. {problem} Redonne la réponse entière, corrigée, sous la forme d'un seul "
        "objet JSON conforme au schéma, sans autre texte."
    )
    return without_tools(_followed_by(question, Message(Role.ASSISTANT, wrong), Message(Role.USER, told)))


def tool_round(question: Question, reply: Reply, results: Sequence[tuple[ToolCall, str]]) -> Question:
    """The same question with what the model asked of its tools and what they say; it may go on or answer."""
    asked = Message(Role.ASSISTANT, reply.content, tool_calls=tuple(call for call, _ in results))
    told = (Message(Role.TOOL, result, tool_call_id=call.id) for call, result in results)
    return replace(_followed_by(question, asked, *told), tool_choice=ToolChoice.AUTO)


def without_tools(question: Question) -> Question:
    """For the last round: the model has to answer."""
    return replace(question, tool_choice=ToolChoice.NONE)


def _followed_by(question: Question, *messages: Message) -> Question:
    return replace(question, messages=(*question.messages, *messages))


def _calls(task: StepTask, excerpts: ExcerptRules) -> str:
    timeline = task.timeline
    if task.mode is TranscriptMode.TOOLS:
        return (
            f"Appels disponibles : {len(timeline.recordings)} enregistrement(s), {timeline.chunk_count} segment(s). "
            "Cherche avec les outils avant de juger."
        )
    if not (excerpts.enabled and task.step.verify_product_info):
        return timeline_text(timeline)
    chosen = excerpt(timeline, task.step, excerpts.max_chunks)
    return timeline_text(timeline, chosen if len(chosen) < timeline.chunk_count else None)


def _product(task: StepTask) -> str:
    if not task.step.verify_product_info:
        return ""
    product = defused(task.product or "")
    told = f"{product}\n{rules_text.PRODUCT_GUIDANCE}" if product else rules_text.NO_PRODUCT
    return f"=== PRODUIT ===\n{told}\n=== FIN DU PRODUIT ==="


def _step(task: StepTask) -> str:
    step = task.step
    facts = {
        "Description": step.description,
        "Consigne": step.prompt,
        "Instructions complémentaires": task.instructions,
        "Résultat précédent": (task.previous or "")[:LONGEST_PREVIOUS],
    }
    points = (f"{number}. {one_line(point)}" for number, point in enumerate(step.control_points, start=1))
    flags = f"Critique : {_yes(step.is_critical)} | Vérification produit : {_yes(step.verify_product_info)}"
    lines = (
        f"=== ÉTAPE {step.position}/{len(task.config.steps)} : {one_line(step.name)} ===",
        f"Gravité : {step.severity} | Poids : {step.weight} | {flags}",
        *(f"{name} : {one_line(text)}" for name, text in facts.items() if text and text.strip()),
        "Points de contrôle :",
        *points,
        f"Mots-clés : {', '.join(map(one_line, step.keywords)) or 'aucun'}",
        "=== FIN DE L'ÉTAPE ===",
    )
    return "\n".join(lines)


def _rules(mode: TranscriptMode) -> str:
    return f"=== RÈGLES ===\n{rules_text.rules(mode)}\n=== FIN DES RÈGLES ==="


def _closing(step: AuditStep) -> str:
    return (
        "Analyse maintenant cette étape. Réponds par le seul objet JSON demandé, avec exactement "
        f"{len(step.control_points)} point(s) de contrôle."
    )


def _yes(flag: bool) -> str:
    return "oui" if flag else "non"
