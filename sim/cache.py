# SPDX-License-Identifier: Apache-2.0
"""What `built_once` keeps in the build folder: to look at, and to remove."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from systola.sim.build import KEY, SEAL, WORK, build_root, in_build_folder, in_use


@dataclass(frozen=True)
class Kind:
    """What is kept of one kind."""

    name: str
    entries: int
    size: int
    """Bytes, with those that are being built or were left by killed builds."""


def list_cache() -> list[Kind]:
    """What is kept, by kind, those without anything left out."""
    kinds: list[Kind] = []
    for folder in _folders():
        locks = list(_locks(folder))
        entries = sum(lock.with_suffix("").exists() for lock in locks)
        size = sum(_size(path) for lock in locks for path in _paths(lock))
        if size:
            kinds.append(Kind(folder.name, entries, size))
    return kinds


def clear_cache() -> tuple[int, int]:
    """Removes it, but for what is being built; the bytes that were freed, and what was left.

    Nothing else in the build folder is touched. Raises BuildFolderError.
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
    """The lock files of built_once: each thing that it has built or begun has one."""
    for path in sorted(folder.glob("*.lock")):
        if re.fullmatch(rf"{KEY}(\.\w+)?\.lock", path.name):
            yield path


def _paths(lock: Path) -> list[Path]:
    """Returns what was built under a lock, its seal, and what was begun."""
    built = lock.with_suffix("")
    begun = lock.parent.glob(f"{WORK}{built.name}-*")
    return [path for path in (built, Path(f"{built}{SEAL}"), *begun) if path.exists()]


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size
