# SPDX-License-Identifier: Apache-2.0
"""The placement of each operator of a model file: on the machine or on the host, and for which
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Place(Enum):
    """A side on which an operator runs: machine or host; REFUSED if the network cannot run."""

    MACHINE = "machine"
    HOST = "host"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """An operator of a model file with the side on which it runs, and the reason."""

    number: int
    """Position of the operator in the file, counted from 0."""
    kind: str
    shape: tuple[int, ...] | None
    """Shape of the operator's first result if the model takes one sample; None if it is not known.
    """
    place: Place
    macs: int
    """Number of multiply-accumulates of the operator in one sample."""
    reason: str = ""
    """Reason why the machine does not run the operator; empty if the machine runs it or could run
    it.
    """

    @property
    def remedy(self) -> str:
        """Advice on how to make the operator run on the machine; empty if none is known."""
        return next((text for part, text in _REMEDIES if part in self.reason), "")


_QUANTISE = "'tpu quantize' makes a float network int8"
_REMEDIES = (
    ("float32", _QUANTISE),
    ("float16", _QUANTISE),
    ("not quantised", _QUANTISE),
    ("must come from a DequantizeLinear", _QUANTISE),
    ("int16", "quantise it to 8 bits"),
    ("this kind of operator", "build it from the operators of docs/operators.md"),
    ("no 16-bit modes", "take a larger preset"),
)
"""Pairs of a text and a remedy, which is an advice. A reason gets the remedy of the first pair with
a text that occurs in the reason.
"""


def macs_share(placements: Sequence[Placement]) -> float:
    """Return the share of a network's multiply-accumulates that the machine does, from 0 to 1."""
    total = sum(each.macs for each in placements)
    on_machine = sum(each.macs for each in placements if each.place is Place.MACHINE)
    return on_machine / total if total else 0.0
