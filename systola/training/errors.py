# SPDX-License-Identifier: Apache-2.0
"""The errors for mistakes of a user of training."""


class TrainingError(ValueError):
    """An error in a model, data or option of a user of training, in one line of printable
    characters.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(one_line(reason))


class NoRoomError(TrainingError):
    """An error for numbers that the memories of a core have no room for; a smaller batch or model
    may fit.
    """


def one_line(text: str) -> str:
    """Return a text as one line of printable characters."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in " ".join(text.split())
    )
