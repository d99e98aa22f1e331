# SPDX-License-Identifier: Apache-2.0
"""The functions that list and remove the results of `built_once` in the build folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from systola.sim.build import KEY, SEAL, WORK, build_root, in_build_folder, in_use


@dataclass(frozen=True)
class Kind:
    """A kind of results in the build folder, with their number and size."""

    name: str
    entries: int
    size: int
    """Bytes of the results, with results that are being built or were left by killed builds."""


def list_cache() -> list[Kind]:
    """Return the kinds of results in the build folder; empty kinds are left out."""
    kinds: list[Kind] = []
    for folder in _folders():
        locks = list(_locks(folder))
        entries = sum(lock.with_suffix("").exists() for lock in locks)
        size = sum(_size(path) for lock in locks for path in _paths(lock))
        if size:
            kinds.append(Kind(folder.name, entries, size))
    return kinds


def clear_cache() -> tuple[int, int]:
    """Remove all results that are not being built.

    Returns the bytes freed, and the number of results left. Nothing else in the build folder is
    touched. Raises BuildFolderError.
    """
    freed = busy = 0
    for folder in _folders():
        with in_build_folder(folder):
            for lock in _locks(folder):
                with in_use(lock) as used:
                    if used:
                        busy += 1
                        continue
                    for path in _paths(lock):
                        freed += _size(path)
                        if path.is_dir():
                            shutil.rmtree(path)
                        else:
                            path.unlink()
    return freed, busy


def _folders() -> list[Path]:
    root = build_root()
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _locks(folder: Path) -> Iterator[Path]:
    """Yield the lock files of built_once: each result that it has built or begun has one."""
    for path in sorted(folder.glob("*.lock")):
        if re.fullmatch(rf"{KEY}(\.\w+)?\.lock", path.name):
            yield path


def _paths(lock: Path) -> list[Path]:
    """Return the paths under a lock that exist: the result, its seal, and unfinished results."""
    built = lock.with_suffix("")
    begun = lock.parent.glob(f"{WORK}{built.name}-*")
    return [path for path in (built, Path(f"{built}{SEAL}"), *begun) if path.exists()]


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size
