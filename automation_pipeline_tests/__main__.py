"""`make test`: runs the end-to-end tests, which mostly wait, concurrently with all other tests. It passes
its options to pytest."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
END_TO_END = ("-n", "3", TESTS / "e2e")
OTHER_TESTS = ("-n", "2", "--ignore", TESTS / "e2e", TESTS)


def main(options: Sequence[str]) -> int:
    started_at = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", *options]
    with tempfile.TemporaryFile("w+") as output:
        background = subprocess.Popen(
            [*command, *END_TO_END], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            other_tests = subprocess.run([*command, *OTHER_TESTS], check=False).returncode
            end_to_end = background.wait()
        except KeyboardInterrupt:
            # The terminal has interrupted both processes; each pytest ends the servers of its tests.
            return background.wait() or -signal.SIGINT
        output.seek(0)
        sys.stdout.write(f"\nEnd-to-end tests, which ran concurrently:\n{output.read()}")
    spent = os.times()
    sys.stdout.write(
        f"{time.monotonic() - started_at:.0f} s, {spent.children_user + spent.children_system:.0f} CPU seconds\n"
    )
    return other_tests or end_to_end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
