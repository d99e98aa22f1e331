# SPDX-License-Identifier: Apache-2.0
"""Checks names of files that a user gives, before anything is written."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from systola.training.checks import flag, shown
from systola.training.errors import TrainingError


def check_path(path: str | PathLike[str]) -> Path:
    """Return a path; raise TrainingError for another type, and for a text that is no path."""
    if not isinstance(path, (str, PathLike)) or "\0" in str(path):  # type: ignore[reportUnnecessaryIsInstance]
        raise TrainingError(f"a path is a text, not {shown(path)}")
    return Path(path)


def check_target(path: str | PathLike[str], *, overwrite: bool) -> Path:
    """Return the path of a file that may be written.

    Raises TrainingError for a folder, and for an existing file if `overwrite` is False.
    """
    target, overwrite = check_path(path), flag("overwrite", overwrite)
    if target.is_dir():
        raise TrainingError(f"cannot save to {path}: it is a folder")
    if not overwrite and target.exists():
        raise TrainingError(f"{path} is there already: take another name, or overwrite=True")
    return target
