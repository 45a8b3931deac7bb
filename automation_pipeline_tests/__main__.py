"""`make test`: the whole-process tests, which mostly wait, run at the same time as all others.
Options are pytest's."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

WORKERS = ("-n", "2")
OTHERS = ("-m", "not e2e")
WHOLE_PROCESSES = ("-m", "e2e")


def main(options: Sequence[str]) -> int:
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", *WORKERS, *options]
    with tempfile.TemporaryFile("w+") as output:
        background = subprocess.Popen(
            [*command, *WHOLE_PROCESSES], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            here = subprocess.run([*command, *OTHERS], check=False).returncode
            there = background.wait()
        except (
            KeyboardInterrupt
        ):  # the terminal has interrupted both: the servers of the tests are ended by pytest
            return background.wait() or -signal.SIGINT
        output.seek(0)
        sys.stdout.write(f"\nWhole processes, which ran at the same time:\n{output.read()}")
    spent = os.times()
    sys.stdout.write(
        f"{time.monotonic() - began:.0f} s, of processor {spent.children_user + spent.children_system:.0f} s\n"
    )
    return here or there


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
