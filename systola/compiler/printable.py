# SPDX-License-Identifier: Apache-2.0
"""Functions that make names from files and error messages of libraries safe to be shown."""

from __future__ import annotations

MOST_REASON = 300
"""Largest length of a library's error message, in characters: LiteRT names each wrong tensor in one
line.
"""


def printable(text: str) -> str:
    """Return `text` with a question mark in place of each character that is not printable.

    Files of other people may hold anything in a name: escape sequences, which terminals obey, line
    feeds, and marks that turn the direction of writing round.
    """
    return "".join(character if character.isprintable() else "?" for character in text)


def reason_of(error: Exception) -> str:
    """Return the message of a library's exception in one printable line.

    An exception without a message gives the name of its type. A line of more than MOST_REASON
    characters is cut.
    """
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= MOST_REASON else f"{text[: MOST_REASON - 4]} ..."
