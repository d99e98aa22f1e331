# SPDX-License-Identifier: Apache-2.0
"""The error for mistakes of a user of training."""


class TrainingError(ValueError):
    """A model, data or option that cannot be trained with, in one line of printable characters."""

    def __init__(self, reason: str) -> None:
        line = (
            each if each.isprintable() else each.encode("unicode_escape").decode()
            for each in " ".join(reason.split())
        )
        super().__init__("".join(line))
