# SPDX-License-Identifier: Apache-2.0
"""A network in a few words: `512,dropout=0.2,10` is Dense 512 ReLU, Dropout 0.2, Dense 10."""

from __future__ import annotations

import re

from systola.training.layers import Dense, Dropout, Layer

_DESCRIPTION = re.compile(r"\d+(,(\d+|dropout=\d*\.?\d+))*")


def is_description(text: str) -> bool:
    """Whether it is one, and no name of a file."""
    return _DESCRIPTION.fullmatch(text) is not None


def layers(text: str) -> list[Layer]:
    """The layers: numbers are Dense, ReLU but for the last one."""
    parts = text.split(",")
    last = max(number for number, part in enumerate(parts) if part.isdigit())
    found: list[Layer] = []
    for number, part in enumerate(parts):
        if part.isdigit():
            found.append(Dense(int(part), None if number == last else "relu"))
            continue
        found.append(Dropout(float(part.removeprefix("dropout="))))
    return found
