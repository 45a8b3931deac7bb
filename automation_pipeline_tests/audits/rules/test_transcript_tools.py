"""The model's tools, search terms, excerpts and previews."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import Timeline, minutage
from automation_pipeline.audits.models.chat import ToolCall
from automation_pipeline.audits.rules.tools import TOOLS, excerpt, preview, run_tool
from automation_pipeline_tests.audits.rules.timelines import step, timeline, timelines
from automation_pipeline_tests.cases import every_case

CALLS = timeline(
    ["bonjour", "le délai de rétractation", "rien", "un DELAI"],
    ["garantie et délai de rétractation"],
)
LARGE_LIMIT = 100_000


def call_tool(
    name: str, limit: int = LARGE_LIMIT, calls: Timeline = CALLS, **arguments: object
) -> Any:
    return json.loads(run_tool(ToolCall("1", name, json.dumps(arguments)), calls, limit))


def search(query: str, **arguments: object) -> Any:
    return call_tool(
        "searchTranscript", query=query, **{"maxResults": None, "minTermLength": None} | arguments
    )


def read(
    *positions: tuple[int, int],
    calls: Timeline = CALLS,
    limit: int = LARGE_LIMIT,
    **arguments: object,
) -> Any:
    chunks = [
        {"recording_index": recording, "chunk_index": chunk} for recording, chunk in positions
    ]
    optional = {"includeNeighbors": None, "maxChars": None}
    return call_tool("getTranscriptChunks", limit, calls, chunks=chunks, **optional | arguments)


def positions(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(one["recording_index"], one["chunk_index"]) for one in found]


@every_case(
    ("query", "arguments", "found", "total"),
    [
        ("Délai, rétractation ?", {}, [(0, 1), (1, 0), (0, 3)], 3),
        ("garantie du délai", {}, [(1, 0), (0, 1), (0, 3)], 3),
        ("délai", {"maxResults": 1}, [(0, 1)], 3),
        ("le délai", {"minTermLength": 2, "maxResults": 2}, [(0, 1), (0, 3)], 3),
        ("introuvable", {}, [], 0),
        ("rie", {}, [(0, 2)], 1),  # words of three letters, by default
    ],
)
def test_chunks_are_sorted_by_number_of_matching_terms(
    query: str, arguments: dict[str, object], found: list[tuple[int, int]], total: int
) -> None:
    result = search(query, **arguments)
    assert (positions(result["matches"]), result["total_matches"]) == (found, total)


def test_a_match_has_its_position_and_preview() -> None:
    assert search("garantie")["matches"] == [
        {
            "recording_index": 1,
            "chunk_index": 0,
            "score": 1,
            "minutage": "00:00",
            "minutage_secondes": 0.0,
            "start_timestamp": 0.0,
            "end_timestamp": 29.5,
            "speakers": ["speaker_0"],
            "recording_date": "03/02/2026",
            "recording_time": "11:14",
            "recording_url": "https://records.example.test/1.mp3",
            "preview": "garantie et délai de rétractation",
        }
    ]


@every_case(
    ("wanted", "arguments", "expected"),
    [
        ([(0, 1)], {}, [(0, 1)]),
        ([(0, 1)], {"includeNeighbors": 1}, [(0, 0), (0, 1), (0, 2)]),
        ([(1, 0), (0, 0)], {"includeNeighbors": 2}, [(0, 0), (0, 1), (0, 2), (1, 0)]),
        ([(0, 1), (0, 1), (7, 0), (0, 9), (-1, 0), (0, -1)], {}, [(0, 1)]),
        ([(7, 7)], {"includeNeighbors": 2}, []),
    ],
)
def test_chunks_are_read_with_their_neighbours_in_the_order_of_the_calls(
    wanted: list[tuple[int, int]], arguments: dict[str, object], expected: list[tuple[int, int]]
) -> None:
    result = read(*wanted, **arguments)
    assert (positions(result["chunks"]), result["truncated"]) == (expected, False)


def test_a_chunk_has_its_full_text() -> None:
    [chunk] = read((0, 3))["chunks"]
    assert chunk["full_text"] == "un DELAI"
    assert (chunk["minutage"], chunk["minutage_secondes"]) == ("01:30", 90.0)
    assert "score" not in chunk


def test_at_most_twenty_chunks_are_read() -> None:
    calls = timeline([f"mot {at}" for at in range(40)])
    assert read(*((0, at) for at in range(20)), calls=calls)["truncated"] is False
    result = read(*((0, at) for at in range(30)), calls=calls)
    assert (positions(result["chunks"]), result["truncated"]) == (
        [(0, at) for at in range(20)],
        True,
    )


def test_requested_chunks_take_precedence_over_neighbours() -> None:
    calls = timeline(["a" * 600, "b" * 600, "c" * 600])
    result = read((0, 1), (0, 2), calls=calls, includeNeighbors=1, maxChars=1_000)
    assert [one["full_text"] for one in result["chunks"]] == ["b" * 600, "c" * 400]
    assert result["truncated"] is True


def test_the_previous_neighbour_takes_precedence_over_the_next() -> None:
    calls = timeline(["a" * 600, "b" * 600, "c" * 600])
    result = read((0, 1), calls=calls, includeNeighbors=1, maxChars=1_200)
    assert (positions(result["chunks"]), result["truncated"]) == ([(0, 0), (0, 1)], True)


def test_at_most_twenty_thousand_characters_are_read_by_default() -> None:
    result = read((0, 0), calls=timeline(["a" * 20_001]))
    assert ([len(one["full_text"]) for one in result["chunks"]], result["truncated"]) == (
        [20_000],
        True,
    )


def test_at_most_twenty_five_matches_are_found_by_default() -> None:
    arguments = json.dumps({"query": "mot"})
    call = ToolCall("1", "searchTranscript", arguments)
    result = json.loads(run_tool(call, timeline(["un mot"] * 30), LARGE_LIMIT))
    assert (len(result["matches"]), result["total_matches"]) == (25, 30)


def test_results_fill_the_limit() -> None:
    search_call = ToolCall("1", "searchTranscript", '{"query": "délai, rétractation"}')
    chunks = [{"recording_index": 0, "chunk_index": at} for at in (0, 1)]
    read_call = ToolCall("2", "getTranscriptChunks", json.dumps({"chunks": chunks}))
    found, text = (run_tool(call, CALLS, LARGE_LIMIT) for call in (search_call, read_call))
    assert "délai de rétractation" in found
    # A separator is reserved for each match, also for the last one.
    assert run_tool(search_call, CALLS, len(found) + 2) == found
    fewer = json.loads(run_tool(search_call, CALLS, len(found) + 1))
    assert (len(fewer["matches"]), fewer["total_matches"]) == (2, 3)
    assert run_tool(read_call, CALLS, len(text)) == text
    cut = json.loads(run_tool(read_call, CALLS, len(text) - 1))
    assert [one["full_text"] for one in cut["chunks"]] == ["bonjour", "le délai de rétractatio"]
    assert cut["truncated"] is True


def test_a_chunk_above_the_limit_is_truncated() -> None:
    result = read((0, 0), (0, 1), calls=timeline(['"' * 3_000, "b"]), limit=1_000)
    [chunk] = result["chunks"]
    assert 300 < len(chunk["full_text"]) < 500
    assert result["truncated"] is True


@every_case(
    ("name", "arguments"),
    [
        ("unknownTool", "{}"),
        ("searchTranscript", ""),
        ("searchTranscript", "[]"),
        ("searchTranscript", "{}"),
        ("searchTranscript", '{"query": 3}'),
        ("searchTranscript", '{"query": "?!"}'),
        ("searchTranscript", '{"query": "délai", "maxResults": 51}'),
        ("searchTranscript", '{"query": "délai", "maxResults": true}'),
        ("searchTranscript", '{"query": "délai", "minTermLength": 1}'),
        ("getTranscriptChunks", '{"chunks": []}'),
        ("getTranscriptChunks", '{"chunks": [{"recording_index": 0}]}'),
        ("getTranscriptChunks", '{"chunks": [{"recording_index": 0, "chunk_index": "0"}]}'),
        (
            "getTranscriptChunks",
            '{"chunks": [{"recording_index": 0, "chunk_index": 0}], "includeNeighbors": 3}',
        ),
        (
            "getTranscriptChunks",
            '{"chunks": [{"recording_index": 0, "chunk_index": 0}], "maxChars": 999}',
        ),
        (
            "getTranscriptChunks",
            json.dumps({"chunks": [{"recording_index": 0, "chunk_index": at} for at in range(61)]}),
        ),
    ],
)
def test_an_invalid_call_returns_its_error(name: str, arguments: str) -> None:
    result = json.loads(run_tool(ToolCall("1", name, arguments), CALLS, LARGE_LIMIT))
    assert list(result) == ["error"]
    assert result["error"]


def test_optional_parameters_may_be_omitted() -> None:
    assert json.loads(
        run_tool(ToolCall("1", "searchTranscript", '{"query": "délai"}'), CALLS, LARGE_LIMIT)
    ) == search("délai")


_index = st.integers(-2, 6)
_arguments = st.one_of(
    st.fixed_dictionaries(
        {"query": st.sampled_from(["délai", "la garantie, fin"]) | st.text()},
        optional={"maxResults": st.integers(0, 60), "minTermLength": st.integers(1, 9)},
    ),
    st.fixed_dictionaries(
        {
            "chunks": st.lists(
                st.fixed_dictionaries({"recording_index": _index, "chunk_index": _index}),
                min_size=1,
                max_size=25,
            )
        },
        optional={"includeNeighbors": st.integers(0, 2), "maxChars": st.integers(900, 3_000)},
    ),
).map(json.dumps)


@given(
    st.sampled_from([*(tool.name for tool in TOOLS), "autre"]),
    _arguments | st.text(),
    timelines(),
    st.integers(-1, 3_000),
)
def test_no_tool_call_raises_or_exceeds_the_limit(
    name: str, arguments: str, calls: Timeline, limit: int
) -> None:
    text = run_tool(ToolCall("1", name, arguments), calls, limit)
    assert len(text) <= max(0, limit)
    if limit < 40:
        return
    result = json.loads(text)
    for one in result.get("chunks", result.get("matches", [])):
        chunk = calls.chunk(one["recording_index"], one["chunk_index"])
        assert chunk is not None
        assert one.get("full_text", one.get("preview")) in chunk.full_text


@given(st.lists(st.text(max_size=200), min_size=1, max_size=6), st.integers(300, 3_000))
def test_chunks_are_not_truncated_by_default(texts: list[str], limit: int) -> None:
    result = read(*((0, at) for at in range(len(texts))), calls=timeline(texts), limit=limit)
    if not result.get("truncated", True):
        assert [one["full_text"] for one in result["chunks"]] == [text for text in texts if text]


def test_the_tool_schemas_are_strict() -> None:
    for tool in TOOLS:
        assert tool.parameters["additionalProperties"] is False
        assert tool.parameters["required"] == list(tool.parameters["properties"])


STEP = step(
    name="Garanties",
    keywords=("Hospitalisation", "prix"),
    control_points=("Le délai de carence est dit",),
)
NOTHING = "rien du tout"


@every_case(
    ("calls", "max_chunks", "chosen"),
    [
        ([[NOTHING, NOTHING, "vos garanties", NOTHING, NOTHING]], 10, {(0, 1), (0, 2), (0, 3)}),
        (
            [["HOSPITALISATION !", NOTHING, NOTHING], [NOTHING, NOTHING, "un delai"]],
            10,
            {(0, 0), (0, 1), (1, 1), (1, 2)},
        ),
        # The better one wins, then the earlier one.
        ([["garanties", NOTHING, NOTHING, "garanties, délai"], ["garanties"]], 1, {(0, 2), (0, 3)}),
        ([["garanties", NOTHING, NOTHING, NOTHING], ["garanties"]], 1, {(0, 0), (0, 1)}),
        ([[NOTHING, NOTHING, NOTHING, "le prix"]], 10, {(0, 2), (0, 3)}),
        # Words of three letters are no terms: "dit", "est".
        ([[NOTHING, "est dit", NOTHING], ["a"], []], 10, {(0, 0), (0, 1), (1, 0)}),
        ([], 10, set()),
    ],
)
def test_the_best_chunks_and_their_neighbours_are_chosen(
    calls: list[list[str]], max_chunks: int, chosen: set[tuple[int, int]]
) -> None:
    assert excerpt(timeline(*calls), STEP, max_chunks) == chosen


@given(timelines(), st.integers(1, 10))
def test_an_excerpt_is_a_nonempty_subset_of_the_chunks(calls: Timeline, max_chunks: int) -> None:
    chosen = excerpt(calls, STEP, max_chunks)
    assert all(calls.chunk(*position) for position in chosen)
    assert bool(chosen) == bool(calls.chunk_count)
    assert len(chosen) <= max(3 * max_chunks, 2 * len(calls.recordings))


LONG = "avant " * 200 + "Délai de rétractation " + "après " * 200


@every_case(
    ("text", "terms", "shown"),
    [
        ("", ("delai",), ""),
        ("le délai", ("delai",), "le délai"),
        (LONG, ("absent",), LONG[:450]),
        (LONG, ("retractation", "delai"), LONG[1080:1530]),
        ("avant " * 200 + "délai", ("delai",), ("avant " * 200 + "délai")[-450:]),
    ],
)
def test_a_preview_surrounds_the_first_match(text: str, terms: tuple[str, ...], shown: str) -> None:
    assert preview(text, terms) == shown


@every_case(
    ("seconds", "text"),
    [
        (0, "00:00"),
        (12.4, "00:12"),
        (59.99, "00:59"),
        (60, "01:00"),
        (72.4, "01:12"),
        (3599, "59:59"),
        (11_107, "185:07"),
        (-3.0, "00:00"),
        (float("nan"), "00:00"),
        (float("inf"), "00:00"),
    ],
)
def test_a_minutage_has_minutes_and_seconds_without_hours(seconds: float, text: str) -> None:
    assert minutage(seconds) == text
