# SPDX-License-Identifier: Apache-2.0
"""Names of files on the command line, and the check of all files that a command reads or writes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from pty import STDOUT_FILENO
from stat import S_ISCHR, S_ISREG
from typing import Protocol, runtime_checkable

from systola.cli.errors import UserError
from systola.cli.output import STANDARD_OUTPUT, writing
from systola.runtime.write_file import check_writable


class InputName(str):
    """A name of a file that a command reads; the class converts for argparse."""

    __slots__ = ()


class OutputName(str):
    """A name of a file that a command writes; '-' is standard output."""

    __slots__ = ()


@runtime_checkable
class OutputNames(Protocol):
    """The names of all files that a command writes by a pattern."""

    def check_writable(self) -> None:
        """Raise OSError where files with such names cannot be written."""
        ...

    def existing(self) -> list[str]:
        """Return the existing files with such names."""
        ...

    def could_be(self, path: str) -> bool:
        """Return whether the pattern could make `path`, an absolute path without symbolic links."""
        ...


def output_name(text: str) -> OutputName:
    """Convert, for argparse, the name of an output; every name of standard output becomes '-'."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name is no file")
    return OutputName(STANDARD_OUTPUT if _is_standard_output(text) else text)


def checkpoint_names(text: str) -> OutputNames:
    """Convert, for argparse, a pattern such as d{epoch}.tpu."""
    from systola.training.checkpoint_names import CheckpointNames
    from systola.training.errors import TrainingError

    try:
        return CheckpointNames(text)
    except TrainingError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_files(values: Iterable[object]) -> None:
    """Check the files among the values of all options, before a command begins to work.

    Raises UserError if a command would write over a file that it reads, would write two outputs to
    one file, or cannot write. A file that is not regular, such as a device or a pipe, may be named
    several times; standard output may not.
    """
    values = list(values)
    seen: dict[object, str] = {}
    for name in values:
        if isinstance(name, InputName):
            seen[_identity(name)] = name
    seen.pop(None, None)
    for name in values:
        if isinstance(name, OutputName):
            identity = _identity(name)
            if identity in seen:
                raise _written_over(name, seen[identity])
            if identity is not None:
                seen[identity] = name
    for name in values:
        if isinstance(name, OutputNames):
            _check_names(name, seen)
            with writing(str(name)):
                name.check_writable()
        elif isinstance(name, OutputName) and name != STANDARD_OUTPUT:
            with writing(name):
                check_writable(name)


def _check_names(names: OutputNames, seen: Mapping[object, str]) -> None:
    """Raise UserError if a checkpoint's name is another name of a file already `seen`."""
    for path in names.existing():
        if other := seen.get(_identity(path)):
            raise _written_over(str(names), other)
    for identity, other in seen.items():
        if isinstance(identity, str) and names.could_be(identity):
            raise _written_over(str(names), other)


def _written_over(name: str, other: str) -> UserError:
    """Return the error for an output `name` that stands for the same file as `other`."""
    twice = "is named twice" if name == other else f"is {other}, too"
    return UserError(f"{name} {twice}: the output would be written over it")


def _identity(path: str) -> object:
    """Return an object that is equal for all names of a file; None for a pipe or device."""
    if path == STANDARD_OUTPUT:
        return path
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return (status.st_dev, status.st_ino) if S_ISREG(status.st_mode) else None


def _is_standard_output(path: str) -> bool:
    """Return whether output to `path` goes to the same file or pipe as standard output.

    A terminal counts only under the name '-'.
    """
    if path == STANDARD_OUTPUT:
        return True
    try:
        status, standard = os.stat(path), os.fstat(STDOUT_FILENO)
    except (OSError, ValueError):
        return False
    return os.path.samestat(status, standard) and not S_ISCHR(status.st_mode)
