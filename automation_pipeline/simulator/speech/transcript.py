"""The values of a transcript. `conversation.py` creates them, `elevenlabs.py` renders them."""

from dataclasses import dataclass
from enum import StrEnum

AGENT, CLIENT = "speaker_0", "speaker_1"


class CallKind(StrEnum):
    SALES = "sales"
    FOLLOW_UP = "follow_up"  # about papers, the card or a question, without a sale
    SHORT = "short"  # the client has no time
    VOICEMAIL = "voicemail"
    SILENT = "silent"  # an empty transcript without words


class Phase(StrEnum):
    """Phases of a call, in order. The keywords of a phase occur in no other phase."""

    PRESENTATION = "presentation"  # the agent's name, the company, ORIAS
    RECORDING_NOTICE = "recording_notice"
    DISCOVERY = "discovery"
    CURRENT_CONTRACT = "current_contract"
    PRODUCT = "product"
    QUESTIONS = "questions"
    PRICE = "price"
    PRESSURE = "pressure"  # sentences that an agent must not say
    WITHDRAWAL_RIGHT = "withdrawal_right"
    CONSENT = "consent"  # with the electronic signature
    PAYMENT = "payment"  # with the IBAN
    RECAP = "recap"
    THANKS = "thanks"
    FOLLOW_UP = "follow_up"
    CALL_BACK = "call_back"
    VOICEMAIL = "voicemail"


@dataclass(frozen=True, slots=True)
class Turn:
    """The words of one speaker until the other one speaks. Tokens in brackets are audio events."""

    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """`kind` is word, spacing or audio_event, as the provider calls them."""

    text: str
    kind: str
    start: float
    end: float
    speaker: str
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """`phases` are the complete phases of the call. A call that ends early lacks the later ones."""

    kind: CallKind
    phases: tuple[Phase, ...]
    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        return "".join(word.text for word in self.words)
