# SPDX-License-Identifier: Apache-2.0
"""The error for mistakes of a user of training."""


class TrainingError(ValueError):
    """A model, data or option that cannot be trained with, in one line of printable characters."""

    def __init__(self, reason: str) -> None:
        super().__init__(one_line(reason))


class NoRoomError(TrainingError):
    """A working set that the memories of a core do not hold; a smaller one may fit."""


def one_line(text: str) -> str:
    """Return a text in one line of printable characters."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in " ".join(text.split())
    )
