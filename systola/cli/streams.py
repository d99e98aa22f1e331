# SPDX-License-Identifier: Apache-2.0
"""Standard output and error, which may be closed, or unable to show some characters."""

from __future__ import annotations

import codecs
import io
import os
import sys

_PLAIN = {"\xd7": "x", "\xb5": "u", "\u2588": "#", "\xb0": "deg", "\u2013": "-", "\u2026": "..."}
"""Plain text for the signs of multiplication, micro and degree, a full block, a dash and an
ellipsis, where a terminal cannot show them."""
_HANDLER = "systola-plain"


def prepare_streams() -> None:
    """Make standard output and error take any text, and replace them where they are closed.

    A character that an encoding lacks becomes a plain one, or an escape. Text that is written to a
    closed standard output fails with OSError; to a closed standard error it goes nowhere.
    """
    codecs.register_error(_HANDLER, _plain)
    # The number of a closed stream stays occupied. Otherwise a file that is opened later would get
    # this number, and output would be written to the file.
    if sys.stdout is None:  # type: ignore[reportUnnecessaryComparison]
        sys.stdout = open(_occupied(1, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:  # type: ignore[reportUnnecessaryComparison]
        sys.stderr = open(_occupied(2, os.O_WRONLY), "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def drop_output() -> None:
    """Let the rest in the buffer of standard output go nowhere, as nobody can take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(name: str) -> str:
    """Return the name of a file as text that has an encoding.

    Bytes that are no UTF-8 become escapes such as \\xff.
    """
    return name.encode("utf-8", _HANDLER).decode()


def _occupied(number: int, flags: int) -> int:
    """Open the null device as file descriptor `number`."""
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return number


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Handle an error as codecs.register_error asks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_PLAIN.get(each) or _escape(each) for each in text), error.end


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("ascii", "backslashreplace").decode()
