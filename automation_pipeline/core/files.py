"""Atomic writes of files, and the creation of private files and folders."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from automation_pipeline.core.errors import PermanentError


def write_whole(path: Path, content: bytes) -> None:
    """Write a temporary file in the same folder, then rename it. Raises PermanentError if the file
    cannot be written."""
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
                temporary.chmod(0o644)  # temporary files are readable by their owner only
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a valid file name"
        raise PermanentError(f"{path} cannot be written: {reason}.") from None


def make_private_folder(folder: Path) -> None:
    """Create the folder and its missing parents with mode 0700. Existing folders keep their mode."""
    for path in reversed([folder, *folder.parents]):
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)


def make_private_file(path: Path) -> bool:
    """Create an empty file with mode 0600; False if it exists. SQLite gives the files next to a
    database the mode of the database."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    return True
