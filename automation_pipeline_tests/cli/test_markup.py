"""Text never becomes markup."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.commands.report import Html, element, joined, text


class Reader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.said += data


PRINTABLE = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"))


@given(content=PRINTABLE, value=PRINTABLE)
def test_whatever_is_written_is_read_back_as_text(content: str, value: str) -> None:
    reader = Reader(element("p", content, class_=value))
    assert (reader.tags, reader.said) == (["p"], content)
    assert reader.attributes == [("class", value)]


def test_markup_stays_markup_and_nothing_stays_nothing() -> None:
    assert element("p", Html("<b>x</b>"), None, 3) == "<p><b>x</b>3</p>"
    assert joined("<", Html("<br>")) == "&lt;<br>"
    assert element("meta", http_equiv="x") == '<meta http-equiv="x">'


def test_what_no_document_may_hold_is_replaced() -> None:
    page = text("a\x00b\ud800c\x1b[31m")
    assert page == "a\ufffdb\ufffdc\ufffd[31m"
    assert page.encode()
