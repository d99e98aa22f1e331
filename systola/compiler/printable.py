# SPDX-License-Identifier: Apache-2.0
"""Functions that make names in files and error messages of libraries safe to print."""

from __future__ import annotations

MOST_REASON = 300
"""Largest number of characters that are printed of a library's error message. LiteRT's messages can
be very long, as they name each wrong tensor in one line.
"""


def printable(text: str) -> str:
    """Return `text` with a question mark in place of each character that is not printable.

    A name in a file of other people may contain any character. Escape sequences control terminals,
    line feeds begin new lines, and some marks reverse the direction of writing.
    """
    return "".join(character if character.isprintable() else "?" for character in text)


def reason_of(error: Exception) -> str:
    """Return the message of a library's exception in one printable line.

    If the exception has no message, the name of its type is returned. A line of more than
    MOST_REASON characters is cut off.
    """
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= MOST_REASON else f"{text[: MOST_REASON - 4]} ..."
