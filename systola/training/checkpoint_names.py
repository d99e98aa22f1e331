# SPDX-License-Identifier: Apache-2.0
"""Names of the files that a model is saved to, epoch by epoch, such as digits{epoch}.tpu."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from string import Formatter

from systola.runtime.write_file import check_writable
from systola.training.errors import TrainingError

EPOCH = "epoch"
"""Field of a pattern for the number of the epoch, from 1. All other fields are numbers measured in
the epoch."""
_NUMBER = "0123456789+-.,_% eE"
"""Characters that a number may have in the name of a file. A format such as {epoch:x} allows more
characters."""


class NamesError(TrainingError):
    """An error for a pattern that cannot make names of files."""


class CheckpointNames:
    """A pattern for names of files, with fields such as {epoch} and {val_loss:.2f} that numbers
    replace.

    Raises NamesError if the pattern is malformed, or has a field in the name of the folder.
    """

    def __init__(self, pattern: str) -> None:
        folder, last = os.path.split(pattern)
        try:
            if _fields(folder):
                raise NamesError(f"'{pattern}' has a field in its folder: only its file may")
            self._folder, self._fields = folder.format(), _fields(last)
            self._expression = _expression(last)
            example = dict.fromkeys(self._fields, 0.5) | {EPOCH: 1}
            self._pattern = pattern
            self._example = self.name(example)
        except (ValueError, LookupError) as error:
            if isinstance(error, NamesError):
                raise
            raise NamesError(f"'{pattern}' is no pattern of names: {error}") from None
        if not last:
            raise NamesError(f"'{pattern}' names no file")

    def __str__(self) -> str:
        return self._pattern

    def name(self, numbers: Mapping[str, float]) -> str:
        """Return the name with `numbers` in the fields. Raises NamesError if a number is
        missing.
        """
        self.check_fields(numbers)
        return self._pattern.format(**numbers)

    def check_fields(self, known: Collection[str]) -> None:
        """Raise NamesError if the pattern has fields that are not `known`."""
        for field in self._fields:
            if field not in known:
                raise NamesError(
                    f"'{self}' has a field '{field}' that is not there (known: {', '.join(known)})"
                )

    def check_writable(self) -> None:
        """Raise OSError if files with names of this pattern cannot be written."""
        for path in self.existing() or [self._example]:
            check_writable(path)

    def existing(self) -> list[str]:
        """Return the paths of the existing files with names of this pattern.

        A pattern without fields gives its only path, even if there is no such file.
        """
        if not self._fields:
            return [self._example]
        found: list[str] = []
        with suppress(OSError):  # check_writable raises the errors of this folder
            found = sorted(filter(self._expression.fullmatch, os.listdir(self._folder or ".")))
        return [os.path.join(self._folder, name) for name in found]

    def could_be(self, path: str) -> bool:
        """Return whether numbers in the fields could make `path`, an absolute path without symbolic
        links.
        """
        folder, name = os.path.split(path)
        return folder == os.path.realpath(self._folder) and bool(self._expression.fullmatch(name))


def _fields(pattern: str) -> list[str]:
    """Return the names of the fields of a pattern. Raises ValueError for anything else in
    braces.
    """
    names = [name for _, name, _, _ in Formatter().parse(pattern) if name is not None]
    for name in names:
        if not name.isidentifier():
            raise ValueError(f"'{name}' is no name of a field")
    return names


def _expression(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for all names that numbers can make of `pattern`."""
    parts: list[str] = []
    for text, name, form, _ in Formatter().parse(pattern):
        parts.append(re.escape(text))
        if name is not None:
            form = form or ""
            digits = "abcdefABCDEF" if form.endswith(("x", "X")) else ""
            some = f"[{re.escape(_NUMBER + digits + form)}]"
            parts.append(f"(?:{some}+|{some}*(?i:nan|inf){some}*)")
    return re.compile("".join(parts), re.DOTALL)
