# SPDX-License-Identifier: Apache-2.0
"""The content of the files that a command reads and writes."""

from __future__ import annotations

import io
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.cli.errors import UserError
from systola.runtime.write_file import write_file

STANDARD_OUTPUT = "-"
"""Name of standard output on the command line."""


def write_output(path: str, content: bytes) -> None:
    """Write the content of an output, see write_file. Raises UserError if it cannot be written.

    BrokenPipeError is passed on if standard output has no reader any more.
    """
    with writing(path):
        if path == STANDARD_OUTPUT:
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            write_file(path, content)


@contextmanager
def writing(path: str) -> Generator[None]:
    """Turn an OSError in the context into a UserError: the output `path` cannot be written."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError) and path == STANDARD_OUTPUT:
            raise
        raise UserError(f"cannot write {path}: {_reason(error)}") from None


def npz(outputs: Sequence[NDArray[Any]]) -> bytes:
    """Return the content of a .npz file with an array y, or y0, y1, ... for several outputs."""
    arrays = {f"y{number}" if len(outputs) > 1 else "y": y for number, y in enumerate(outputs)}
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def read_file(path: str) -> bytes:
    """Return the content of a file. Raises UserError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error)).lower()
