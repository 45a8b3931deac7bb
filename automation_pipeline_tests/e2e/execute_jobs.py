"""Executes several `dagster` commands in one process, which loads Dagster only once. Standard input
is a JSON list of commands; the last line of standard output is a JSON list of exit codes."""

import json
import sys
import traceback
from importlib.metadata import entry_points


def exit_code(words: list[str]) -> int:
    [command] = entry_points(group="console_scripts", name="dagster")
    sys.argv = words
    try:
        command.load()()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception:  # noqa: BLE001  the interpreter would print it and exit with 1
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    codes = [exit_code(words) for words in json.load(sys.stdin)]
    sys.stdout.write("\n" + json.dumps(codes) + "\n")
