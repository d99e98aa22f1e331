# SPDX-License-Identifier: Apache-2.0
"""Makes a network from a short text.

`512,dropout=0.2,10` is a Dense of 512 units with ReLU, a Dropout with rate 0.2, and a Dense of 10
units.
"""

from __future__ import annotations

import re

from systola.training.layers import Dense, Dropout, Layer

_DESCRIPTION = re.compile(r"\d+(,(\d+|dropout=\d*\.?\d+))*")


def is_description(text: str) -> bool:
    """Return whether a text describes a network, and is no name of a file."""
    return _DESCRIPTION.fullmatch(text) is not None


def layers(text: str) -> list[Layer]:
    """Return the layers that a text describes.

    A number is a Dense with this number of units. Each Dense but the last has a ReLU.
    """
    parts = text.split(",")
    last = max(number for number, part in enumerate(parts) if part.isdigit())
    found: list[Layer] = []
    for number, part in enumerate(parts):
        if part.isdigit():
            found.append(Dense(int(part), None if number == last else "relu"))
            continue
        found.append(Dropout(float(part.removeprefix("dropout="))))
    return found
