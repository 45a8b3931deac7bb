"""Files that are written completely or not at all, and private files and folders."""

import os
import tempfile
from pathlib import Path

from automation_pipeline.core.errors import PermanentError


def write_whole(path: Path, content: bytes) -> None:
    """Write a temporary file in the same folder, then rename it. PermanentError where the folder
    does not permit it."""
    try:
        make_private_folder(path.parent)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                temporary.chmod(0o644)  # a temporary file is its owner's alone
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a file"
        raise PermanentError(f"{path} cannot be written: {reason}.") from None


def make_private_folder(folder: Path) -> None:
    """With its missing parents. Existing folders keep their mode."""
    for one in reversed([folder, *folder.parents]):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> bool:
    """Create an empty file; False if it exists. SQLite gives its other files the mode of the
    database."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    return True
