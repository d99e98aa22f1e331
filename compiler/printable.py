# SPDX-License-Identifier: Apache-2.0
"""Names out of files, as they can be shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with a question mark for each character that is more than its looks.

    Files of others may hold anything in a name: escape sequences, which terminals obey, line feeds,
    and marks that turn the direction of writing round.
    """
    return "".join(character if character.isprintable() else "?" for character in text)
