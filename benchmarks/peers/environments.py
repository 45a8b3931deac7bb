"""Creates one virtual environment per peer from its pinned requirements.txt, outside the
repository, named after a digest of the pins.

python benchmarks/peers/environments.py [NAME ...]
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
NO_NETWORK = (
    "NewConnectionError",
    "Name or service not known",
    "Temporary failure in name resolution",
    "timed out",
)
NOT_THERE = ("No matching distribution found", "Could not find a version that satisfies")


def main(names: list[str]) -> None:
    for name in names or peers():
        print(f"{name:14} {python_of(name)}", flush=True)


def peers() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))


def competitor_of(name: str) -> Path:
    return HERE / name / "competitor.py"


def python_of(name: str) -> Path:
    """The interpreter with exactly the pinned packages. The environment is created if it does not
    exist."""
    if name not in peers():
        raise SystemExit(f"There is no peer named {name}: there are {', '.join(peers())}.")
    requirements = HERE / name / "requirements.txt"
    room = home(os.environ) / folder(name, requirements.read_text())
    python = room / "bin" / "python"
    if not (room / "ready").exists():
        install(name, room, requirements)
        (room / "ready").touch()
    return python


def home(environment: Mapping[str, str]) -> Path:
    """Outside the repository, so that no search, formatter or `make clean` visits it."""
    if given := environment.get("BENCH_PEERS_HOME"):
        return Path(given)
    cache = (
        environment.get("XDG_CACHE_HOME")
        or Path(environment.get("HOME") or tempfile.gettempdir()) / ".cache"
    )
    return Path(cache) / "automation-pipeline" / "peers"


def folder(name: str, requirements: str) -> str:
    """Other pins or another Python get another environment. The old environments stay."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"{name}-{python}-{hashlib.sha256(requirements.encode()).hexdigest()[:12]}"


def install(name: str, room: Path, requirements: Path) -> None:
    shutil.rmtree(room, ignore_errors=True)
    room.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", room], check=True)
    pip = [
        room / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    done = subprocess.run([*pip, "-r", requirements], check=False, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(room, ignore_errors=True)
        raise SystemExit(complaint(name, done.stderr))


def complaint(name: str, text: str) -> str:
    if any(sign in text for sign in NO_NETWORK):
        return f"{name} cannot be installed: the package index does not answer. Its benchmark needs the network once."
    lines = [
        line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR: ")
    ]
    if any(sign in line for line in lines for sign in NOT_THERE):
        return f"{name} cannot be installed: the package index lacks a pinned version. {lines[-1]}."
    return f"{name} cannot be installed: {lines[-1] if lines else 'pip gave no reason'}."


if __name__ == "__main__":
    main(sys.argv[1:])
