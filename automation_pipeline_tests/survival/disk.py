"""A small disk for the SQLite database that can be filled to the last byte and emptied again.

Root gets a file system in memory. Other users get an emulation: no process of the installation can make
a file longer than the database (an I/O error for SQLite)."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

MEGABYTES = 64
BALLAST = "ballast"


class Disk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "survival", str(folder)]
        self.is_mounted = (
            shutil.which("mount") is not None
            and subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode == 0
        )

    @property
    def description(self) -> str:
        return (
            "a full file system"
            if self.is_mounted
            else "an emulated full disk: files may not grow (RLIMIT_FSIZE)"
        )

    def fill(self, processes: Callable[[], Iterable[psutil.Process]]) -> Callable[[], None]:
        """Fill the disk, and return the function that empties it."""
        return self._fill_up() if self.is_mounted else self._forbid_growth(processes)

    def _fill_up(self) -> Callable[[], None]:
        ballast = self.folder / BALLAST
        with ballast.open("wb", buffering=0) as file:
            block = bytes(4096)
            try:
                while True:
                    file.write(block)
            except OSError:
                pass  # the disk is full
        return ballast.unlink

    def _forbid_growth(
        self, processes: Callable[[], Iterable[psutil.Process]]
    ) -> Callable[[], None]:
        database = max((file.stat().st_size for file in self.folder.iterdir()), default=0)
        self._limit(processes(), database)
        return lambda: self._limit(processes(), resource.RLIM_INFINITY)

    def _limit(self, processes: Iterable[psutil.Process], size: int) -> None:
        for process in processes:
            try:
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, hard))
            except (OSError, ValueError):
                continue

    def remove(self, keep_in: Path | None = None) -> None:
        """Unmount the disk, after copying the database to `keep_in`."""
        if keep_in is not None and self.is_mounted:
            shutil.copytree(self.folder, keep_in, ignore=shutil.ignore_patterns(BALLAST))
        if self.is_mounted:
            os.sync()
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
