"""Judges a step of an audit: control points, keywords, and quotations from the transcript."""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from random import Random

from automation_pipeline.simulator.llm.requests import Message

Words = tuple[str, ...]

SHORTEST_STEM, SURE_STEM, LONGEST_ENDING = 5, 7, 4
SHORTEST_SIGNIFICANT = 4
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> Words:
    """The words of a text in lower case and without accents, for comparisons."""
    decomposed = unicodedata.normalize("NFD", text.lower())
    return tuple(
        _WORD.findall("".join(char for char in decomposed if not unicodedata.combining(char)))
    )


def normalised(text: str) -> str:
    return " ".join(words(text))


def have_same_stem(one: str, other: str) -> bool:
    """Whether two words have the same stem: enregistré and enregistrement, besoin and besoins; not contrat
    and contraire."""
    if one == other:
        return True
    if one[:SHORTEST_STEM] != other[:SHORTEST_STEM] or min(len(one), len(other)) < SHORTEST_STEM:
        return False
    stem = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    is_ending = stem == min(len(one), len(other)) and abs(len(one) - len(other)) <= LONGEST_ENDING
    return stem >= SURE_STEM or is_ending


def contains_phrase(given: Words, phrase: Words) -> bool:
    """Whether the words contain the phrase."""
    return bool(phrase) and any(
        all(map(have_same_stem, phrase, given[start : start + len(phrase)]))
        for start in range(len(given) - len(phrase) + 1)
    )


def is_about(text: Words, phrase: Words) -> bool:
    """Whether the text contains each word of the phrase, except stop words."""
    meaning = [
        word for word in phrase if len(word) >= SHORTEST_SIGNIFICANT or word.isdecimal()
    ] or list(phrase)
    return bool(meaning) and all(any(have_same_stem(word, one) for one in text) for word in meaning)


UNKNOWN = "N/A"
MIN_QUOTE_CHARACTERS = 12
MAX_QUOTE_CHARACTERS = 240

_RECORDING = re.compile(r"^--- Enregistrement (\d+) ---$", re.MULTILINE)
_SEGMENT = re.compile(r"\[Segment (\d+)\]\s*([\d.]+) s - ")
_SPEAKER = re.compile(r"\s?([\w-]+): (.*)")
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")


@dataclass(frozen=True)
class Sentence:
    """`text` is a verbatim part of its chunk, and long enough for a quotation."""

    speaker: str
    text: str
    words: Words


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Both indexes start at 0."""

    recording_index: int
    chunk_index: int
    start: float
    sentences: tuple[Sentence, ...]
    text: str
    call_id: str = ""
    date: str = UNKNOWN
    time: str = UNKNOWN
    url: str = UNKNOWN

    @property
    def minutage(self) -> str:
        return f"{int(self.start) // 60:02d}:{int(self.start) % 60:02d}"


def found(phrase: Words, chunks: Sequence[Chunk]) -> tuple[Chunk, Sentence] | None:
    """The first sentence that contains the phrase, with its chunk."""
    for chunk in chunks:
        for sentence in chunk.sentences:
            if contains_phrase(sentence.words, phrase):
                return chunk, sentence
    return None


def by_weight(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Sort the chunks of the longest call first, because it contains the sale."""
    sizes: dict[int, int] = {}
    for chunk in chunks:
        sizes[chunk.recording_index] = sizes.get(chunk.recording_index, 0) + len(chunk.text)
    return tuple(
        sorted(
            chunks,
            key=lambda chunk: (
                -sizes[chunk.recording_index],
                chunk.recording_index,
                chunk.chunk_index,
            ),
        )
    )


def chunk_of_result(given: Mapping[str, object]) -> Chunk | None:
    """Parse a chunk in the result of a tool, where indexes start at 0."""
    recording, index, text = (
        given.get("recording_index"),
        given.get("chunk_index"),
        given.get("full_text"),
    )
    if not (isinstance(recording, int) and isinstance(index, int) and isinstance(text, str)):
        return None
    start = given.get("start_timestamp")
    return Chunk(
        recording_index=recording,
        chunk_index=index,
        start=float(start) if isinstance(start, int | float) else 0.0,
        sentences=tuple(_sentences(text)),
        text=text,
        date=str(given.get("recording_date", UNKNOWN)),
        time=str(given.get("recording_time", UNKNOWN)),
        url=str(given.get("recording_url", UNKNOWN)),
    )


@lru_cache(maxsize=64)  # all steps of an audit have the same transcript
def chunks_of_transcript(block: str) -> tuple[Chunk, ...]:
    return tuple(_chunks(block))


def _chunks(block: str) -> Iterator[Chunk]:
    recordings = _RECORDING.split(block)
    for number, recording in zip(recordings[1::2], recordings[2::2], strict=True):
        head, *segments = re.split(r"^(?=\[Segment \d+\])", recording, flags=re.MULTILINE)
        call_id, date, time = (_field(head, name) for name in ("Appel", "Date", "Heure"))
        for segment in segments:
            heading, _, text = segment.partition("\n")
            if match := _SEGMENT.match(heading):
                yield Chunk(
                    recording_index=int(number) - 1,
                    chunk_index=int(match[1]) - 1,
                    start=float(match[2]),
                    sentences=tuple(_sentences(text)),
                    text=text.strip(),
                    call_id=call_id,
                    date=date,
                    time=time,
                )


def _field(head: str, name: str) -> str:
    match = re.search(rf"(?:^|\| ){name} : ([^|\n]*)", head, re.MULTILINE)
    return match[1].strip() if match else UNKNOWN


def _sentences(text: str) -> Iterator[Sentence]:
    for line in text.splitlines():
        match = _SPEAKER.fullmatch(line)
        speaker, spoken = (match[1], match[2]) if match else ("unknown", line)
        for sentence in _SENTENCE_END.split(spoken):
            quote = sentence if len(normalised(sentence)) >= MIN_QUOTE_CHARACTERS else spoken
            if len(normalised(quote)) >= MIN_QUOTE_CHARACTERS:
                yield Sentence(speaker, quote, words(sentence))


def shortened(text: str, phrase: Words) -> str:
    """A part of a very long sentence with whole words, which contains the phrase if possible."""
    if len(text) <= MAX_QUOTE_CHARACTERS:
        return text
    tokens = text.split(" ")
    first = next(
        (at for at, token in enumerate(tokens) if contains_phrase(words(token), phrase[:1])), 0
    )
    return " ".join(tokens[max(0, first - 8) : first + 20])


UNKNOWN_FICHE = "?"

_TRANSCRIPT = re.compile(
    r"^=== TRANSCRIPTION DES APPELS ===$(.*?)^=== FIN DE LA TRANSCRIPTION ===$",
    re.MULTILINE | re.DOTALL,
)
_STEP = re.compile(
    r"^=== ÉTAPE (\d+)/\d+ : (.*) ===$(.*?)^=== FIN DE L['’]ÉTAPE ===$", re.MULTILINE | re.DOTALL
)
_WEIGHT = re.compile(r"Poids : (\d+)")
_POINTS = re.compile(r"^Points de contrôle :\n(.*?)^Mots-clés : ?(.*)$", re.MULTILINE | re.DOTALL)
_POINT = re.compile(r"^\d+\. ", re.MULTILINE)
NO_KEYWORDS = "aucun"


@dataclass(frozen=True, kw_only=True)
class AuditPrompt:
    """`chunks` is empty in tool mode, where the transcript is only read through tools. `text` is
    the whole prompt."""

    text: str
    position: int
    name: str
    weight: int
    points: tuple[str, ...]
    keywords: tuple[str, ...]
    has_transcript: bool
    chunks: tuple[Chunk, ...]

    @property
    def fiche_id(self) -> str:
        """The id of the first call without its number."""
        first = min(self.chunks, key=lambda chunk: chunk.recording_index, default=None)
        return fiche_of(first.call_id) if first else UNKNOWN_FICHE


def fiche_of(call_id: str) -> str:
    return call_id[:-2] or UNKNOWN_FICHE


def read_prompt(messages: Sequence[Message]) -> AuditPrompt | None:
    """None for any other chat."""
    for message in messages:
        if message.role == "user" and (prompt := _read(message.text)):
            return prompt
    return None


def _read(text: str) -> AuditPrompt | None:
    transcript = _TRANSCRIPT.search(text)
    step = _STEP.search(text, transcript.end() if transcript else 0)
    listed = _POINTS.search(step[3]) if step else None
    if not (step and listed):
        return None
    weight = _WEIGHT.search(step[3])
    keywords = [keyword.strip() for keyword in listed[2].split(",")]
    return AuditPrompt(
        text=text,
        position=int(step[1]),
        name=step[2],
        weight=int(weight[1]) if weight else 1,
        points=tuple(point.strip() for point in _POINT.split(listed[1]) if point.strip()),
        keywords=tuple(keyword for keyword in keywords if keyword and keyword != NO_KEYWORDS),
        has_transcript=transcript is not None,
        chunks=by_weight(chunks_of_transcript(transcript[1])) if transcript else (),
    )


# The first words of a prohibition, and of a point that applies only in some calls.
FORBIDS = ("aucun ", "aucune ", "absence ", "pas de ", "pas d ")
CONDITIONAL = ("si ", "le cas echeant ", "en cas ")
CONFORME_FROM, PARTIEL_FROM, EXCELLENT_FROM = 0.85, 0.4, 0.95
RATIOS = {"PRESENT": 1.0, "PARTIEL": 0.5, "ABSENT": 0.0}

# Invented quotations: plausible, but not in the transcript.
INVENTIONS = (
    "comme convenu je vous confirme ce point, {keyword}, c'est bien noté",
    "je vous le redis pour que ce soit clair, {keyword}, vous avez bien compris",
    "nous en avons parlé tout à l'heure, {keyword}, tout est en ordre",
)


@dataclass(frozen=True)
class Proof:
    keyword: str
    chunk: Chunk
    speaker: str
    text: str


@dataclass(frozen=True)
class JudgedPoint:
    """One control point. A violated prohibition is ABSENT without a quotation; a point that does
    not apply is NON_APPLICABLE."""

    point: str
    statut: str
    comment: str
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True)
class Judgement:
    points: tuple[JudgedPoint, ...]
    keywords: tuple[str, ...]
    weight: int
    ratio: float = field(init=False)

    def __post_init__(self) -> None:
        counted = [RATIOS[one.statut] for one in self.points if one.statut in RATIOS]
        object.__setattr__(self, "ratio", sum(counted) / len(counted) if counted else 1.0)

    @property
    def score(self) -> int:
        return math.floor(self.ratio * self.weight + 0.5)

    @property
    def conforme(self) -> str:
        if self.ratio >= CONFORME_FROM:
            return "CONFORME"
        return "PARTIEL" if self.ratio >= PARTIEL_FROM else "NON_CONFORME"

    @property
    def niveau(self) -> str:
        if self.conforme == "CONFORME":
            return "EXCELLENT" if self.ratio >= EXCELLENT_FROM else "BON"
        return "ACCEPTABLE" if self.conforme == "PARTIEL" else "INSUFFISANT"


def judge_points(
    prompt: AuditPrompt, chunks: Sequence[Chunk], *, inventions: float, seed: str
) -> Judgement:
    """Judge each control point. `inventions` is the share of PRESENT points with an invented quotation; the seed
    determines which ones."""
    proofs = {keyword: proof for keyword in prompt.keywords if (proof := _proof(keyword, chunks))}
    points = [_judged_point(point, prompt.keywords, proofs) for point in prompt.points]
    judged_points = tuple(
        _with_invention(point, index)
        if point.statut == "PRESENT" and _is_drawn(seed, index, inventions)
        else point
        for index, point in enumerate(points)
    )
    return Judgement(judged_points, tuple(proofs), prompt.weight)


def _proof(keyword: str, chunks: Sequence[Chunk]) -> Proof | None:
    phrase = words(keyword)
    occurrence = found(phrase, chunks)
    if occurrence is None:
        return None
    chunk, sentence = occurrence
    return Proof(keyword, chunk, sentence.speaker, shortened(sentence.text, phrase))


def _judged_point(point: str, keywords: Sequence[str], proofs: dict[str, Proof]) -> JudgedPoint:
    point_words = words(point)
    own = [keyword for keyword in keywords if is_about(point_words, words(keyword))]
    proven = [proofs[keyword] for keyword in own or keywords if keyword in proofs]
    opening = f"{' '.join(point_words)} "
    if opening.startswith(FORBIDS):
        return _forbidden(point, proven)
    if proven and (own or 2 * len(proven) >= len(keywords)):
        comment = f"Dit à {proven[0].chunk.minutage} : « {proven[0].keyword} »."
        return JudgedPoint(point, "PRESENT", comment, tuple(proven[:2]))
    if proven:
        return JudgedPoint(
            point,
            "PARTIEL",
            "Le sujet est abordé, sans être traité entièrement.",
            tuple(proven[:1]),
        )
    if opening.startswith(CONDITIONAL):
        return JudgedPoint(point, "NON_APPLICABLE", "Le cas ne se présente pas dans les appels.")
    return JudgedPoint(point, "ABSENT", "Rien dans les appels ne permet de le constater.")


def _forbidden(point: str, proven: Sequence[Proof]) -> JudgedPoint:
    if not proven:
        return JudgedPoint(point, "NON_APPLICABLE", "Rien de tel n'est dit dans les appels.")
    return JudgedPoint(
        point, "ABSENT", f"Manquement à {proven[0].chunk.minutage} : « {proven[0].text} »"
    )


def _is_drawn(seed: str, index: int, share: float) -> bool:
    return Random(f"{seed}/{index}").random() < share


def _with_invention(point: JudgedPoint, index: int) -> JudgedPoint:
    """Replace the quotation by words that do not occur at that position of the call."""
    true = point.proofs[0]
    chunk_text = normalised(true.chunk.text)
    first = index % len(INVENTIONS)
    rotated = INVENTIONS[first:] + INVENTIONS[:first]
    texts = (text.format(keyword=true.keyword) for text in rotated)
    text = next((text for text in texts if normalised(text) not in chunk_text), None)
    if text is None:
        return point
    return JudgedPoint(
        point.point,
        point.statut,
        point.comment,
        (Proof(true.keyword, true.chunk, true.speaker, text),),
    )
