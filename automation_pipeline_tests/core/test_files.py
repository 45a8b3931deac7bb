"""Files that are written completely or not at all."""

from pathlib import Path

import pytest

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.files import write_whole


def test_a_file_replaces_the_one_before_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "page.html"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_put_in_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "inside").touch()
    with pytest.raises(PermanentError, match="taken cannot be written: Is a directory"):
        write_whole(tmp_path / "taken", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("name", ["file/below", "nul\0"])
def test_a_place_that_cannot_be_is_one_plain_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PermanentError, match="cannot be written: "):
        write_whole(tmp_path / name, b"content")
