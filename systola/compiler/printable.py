# SPDX-License-Identifier: Apache-2.0
"""Names from files, made safe to be shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with a question mark in place of each character that is not printable.

    Files of other people may hold anything in a name: escape sequences, which terminals obey, line
    feeds, and marks that turn the direction of writing round.
    """
    return "".join(character if character.isprintable() else "?" for character in text)
