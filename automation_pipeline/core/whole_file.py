"""Files that are there whole or not at all, whoever else writes or reads them."""

import os
import tempfile
from pathlib import Path

from automation_pipeline.core.errors import PermanentError


def write_whole(path: Path, content: bytes) -> None:
    """Written beside its place, then moved there; PermanentError where the folder does not let us."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = _written_beside(path, content)
        try:
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a file"
        raise PermanentError(f"{path} cannot be written: {reason}.") from None


def _written_beside(path: Path, content: bytes) -> Path:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o644)  # a temporary file is its owner's alone
        except OSError:
            Path(file.name).unlink()
            raise
        return Path(file.name)
