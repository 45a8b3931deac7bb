"""The URL and key of a language model, and the check of both."""

import httpx
import pytest

from automation_pipeline.clients.http import bare_key
from automation_pipeline.clients.llm import ModelAnswerError, ModelRefusedError, chat_root
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import json_answer, with_client
from automation_pipeline_tests.clients.test_llm import KEY, ROOT, ask, client, completion, refusing


@every_case(
    ("configured", "root"),
    [
        ("http://127.0.0.1:1234/v1", "http://127.0.0.1:1234/v1"),
        (" http://127.0.0.1:1234/v1/ ", "http://127.0.0.1:1234/v1"),
        ("http://127.0.0.1:1234", "http://127.0.0.1:1234/v1"),
        ("https://llm.test/", "https://llm.test/v1"),
        ("https://llm.test/openai/v1", "https://llm.test/openai/v1"),
        ("https://llm.test/api?version=3", "https://llm.test/api?version=3"),
        ("https://llm.test?version=3", "https://llm.test/v1?version=3"),
    ],
)
def test_a_base_url_without_a_path_gets_v1(configured: str, root: str) -> None:
    assert str(chat_root(configured)) == root


@every_case(
    "configured",
    [
        "",
        "llm.test/v1",
        "ftp://llm.test",
        "http://",
        "http://h:port/",
        "http://h:99999",
        "http://\n",
    ],
)
def test_a_base_url_that_is_not_http_is_refused_at_construction(configured: str) -> None:
    with pytest.raises(
        PermanentError, match=r"^LLM address is not one of the web \(set LLM_BASE_URL\)$"
    ):
        client(json_answer({}), base_url=configured)


@every_case(
    ("base_url", "path"),
    [
        ("http://h/api?version=3", "/api/models/org%2Fmodel?version=3"),
        (ROOT, "/v1/models/org%2Fmodel"),
    ],
)
def test_the_query_of_the_base_url_is_kept_and_the_model_name_is_escaped(
    base_url: str, path: str
) -> None:
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"data": []} if len(paths) == 1 else {"id": "org/model"})

    with_client(client(answer, base_url=base_url, model="org/model"), lambda model: model.check())
    assert paths[1] == path


@every_case(
    ("key", "header"), [(f' "{KEY}"\n', f"Bearer {KEY}"), (None, None), ("", None), (" '' ", None)]
)
def test_a_self_hosted_server_needs_no_key(key: str | None, header: str | None) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers.get("Authorization") == header
        return httpx.Response(200, json=completion())

    assert ask(answer, key=key).content == "{}"


@every_case("key", [None, "", ' "" '])
def test_openai_requires_a_key(key: str | None) -> None:
    with pytest.raises(PermanentError) as caught:
        client(json_answer({}), key=key, base_url="https://API.openai.com/v1")
    assert str(caught.value) == "LLM API key not configured (set LLM_API_KEY)"


def test_a_key_with_invalid_header_characters_is_refused_without_being_shown() -> None:
    with pytest.raises(
        PermanentError, match=r"^LLM API key holds characters that cannot be sent"
    ) as caught:
        client(json_answer({}), key="sk-é")
    assert "sk-" not in str(caught.value)
    assert bare_key("sk-é") == "sk-é"


HTML = (200, "<html>Welcome</html>")
LISTED = (200, {"object": "list", "data": [{"id": "gpt-4o"}, {"id": "gpt-4.1", "object": "model"}]})
UNLISTED = (200, {"data": [{"id": "gpt-4o"}]})
LACKING = (404, {"detail": "Not Found"})
UNKNOWN = (404, refusing("Unknown.", "model_not_found"))
CLOSED = (403, refusing("Missing scopes: api.model.read"))
GOOD = (200, completion())
WRONG_KEY = (401, refusing("Wrong key.", "invalid_api_key"))
DOWN = (503, {})


@every_case(
    ("pages", "kind"),
    [
        ([LISTED], None),
        ([UNLISTED, (200, {"id": "gpt-4.1-2025-04-14"})], None),
        ([UNLISTED, UNKNOWN], ModelRefusedError),
        ([UNLISTED, LACKING, GOOD], None),
        ([UNLISTED, LACKING, UNKNOWN], ModelRefusedError),
        ([UNLISTED, HTML, GOOD], None),
        ([LACKING, GOOD], None),
        ([(405, {}), GOOD], None),
        ([CLOSED, GOOD], None),
        ([CLOSED, CLOSED], ModelRefusedError),
        ([HTML, HTML], ModelAnswerError),
        ([HTML, LACKING], ModelRefusedError),
        ([WRONG_KEY], ModelRefusedError),
        ([LACKING, WRONG_KEY], ModelRefusedError),
        ([DOWN], TransientError),
        ([LACKING, DOWN], TransientError),
    ],
)
def test_the_check_lists_models_and_falls_back_to_a_completion(
    pages: list[tuple[int, object]], kind: type[AutomationError] | None
) -> None:
    left = list(pages)

    def answer(_: httpx.Request) -> httpx.Response:
        status, document = left.pop(0)
        return httpx.Response(status, json=document)

    raised: AutomationError | None = None
    try:
        with_client(client(answer), lambda model: model.check())
    except AutomationError as error:
        raised = error
    assert (type(raised) if raised else None, left) == (kind, [])
