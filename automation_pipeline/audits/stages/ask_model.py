"""Ask the model one question: in turn, in a place of all processes, again where another attempt can help."""

import asyncio

from automation_pipeline.audits.domain.chat import Question, Reply
from automation_pipeline.audits.ports import Judge
from automation_pipeline.core.coordination import Rate, reserve
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.retrying import Retrying

LIMIT = "language-model"
# A call may reach the provider a little after its turn: a hundredth to spare keeps any minute within the cap.
MINUTE = 60.6


async def ask_model(question: Question, judge: Judge) -> Reply:
    """PermanentError, and no call at all, for a prompt that is longer than the limit."""
    longest = judge.knobs.max_prompt_characters
    if question.characters > longest:
        raise PermanentError(f"The prompt has {question.characters} characters, more than the {longest} allowed.")

    async def attempt() -> Reply:
        async with judge.semaphore.acquire():
            wait = await reserve(judge.limiter, LIMIT, Rate(judge.knobs.per_minute, MINUTE))
            await asyncio.sleep(wait or 0.0)
            return await judge.model.ask(question)

    return await Retrying(judge.knobs.attempts, judge.knobs.backoff).call(attempt)
