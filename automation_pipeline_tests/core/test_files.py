"""Files are written completely or not at all."""

import os
from pathlib import Path

import pytest

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.files import make_private_file, write_whole


def test_a_file_replaces_an_earlier_one_and_creates_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").read_bytes())
    )
    path = tmp_path / "deep" / "down" / "page.html"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert synced == [b"one", b"two"]
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]
    folders = (path.parent, path.parent.parent)
    assert [oct(entry.stat().st_mode & 0o777) for entry in (path, *folders)] == [
        "0o644",
        "0o700",
        "0o700",
    ]
    private = tmp_path / "private.db"
    assert [make_private_file(private) for _ in range(2)] == [True, False]
    assert private.stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "inside").touch()
    with pytest.raises(PermanentError, match="taken cannot be written: Is a directory"):
        write_whole(tmp_path / "taken", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("file/below", "Not a directory"), ("nul\0", "it is not a valid file name")],
)
def test_an_impossible_path_raises_a_readable_error(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PermanentError, match=rf"cannot be written: {reason}\.$"):
        write_whole(tmp_path / name, b"content")
