"""Who types the commands, as runs and rules remember it."""

import getpass
import os


def actor() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, ImportError, OSError):  # a container's user may have no name
        return f"cli:uid-{os.getuid()}"
