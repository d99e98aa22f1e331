# SPDX-License-Identifier: Apache-2.0
"""Layers of networks with branches: Add, Concatenate, and links to results.

A network is a list of layers, each of which takes the result of the layer before it. In a network
with branches, the layers Add, Concatenate and From have links instead. A link is the index, from 0,
of an earlier layer of the list, and stands for the result of that layer.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from systola.training.arguments import constructor
from systola.training.checks import items, whole
from systola.training.layer_base import LAYER, Computing, need

_MOST_LINK = 1 << 16
_LAST_AXIS = "only the last axis can be joined"


@dataclass(frozen=True)
class From(Computing):
    """A link in a list of layers. The next layer takes the result of layer `layer`, from 0."""

    layer: int

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        object.__setattr__(self, "layer", whole("a link", self.layer, 0, _MOST_LINK))


@dataclass(frozen=True)
class Joining(Computing):
    """The base of layers that take several results. Model sets `sources`, the links to these
    results.
    """

    _: KW_ONLY
    sources: tuple[int, ...] = ()

    joins: ClassVar[bool] = True

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        found = items("sources", self.sources, "numbers of layers")
        links = tuple(whole("a link", each, 0, _MOST_LINK) for each in found)
        object.__setattr__(self, "sources", links)


@constructor(**LAYER)
@dataclass(frozen=True)
class Add(Joining):
    """A layer that adds results of one shape, number by number."""


@constructor(**LAYER)
@dataclass(frozen=True)
class Concatenate(Joining):
    """A layer that puts results side by side: channels one after the other, on the last axis."""

    axis: int = -1

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        need(type(self.axis) is int and -1 <= self.axis <= 3, f"axis must be -1: {_LAST_AXIS}")

    def check_axis(self, dimensions: int) -> None:
        """Raise TrainingError unless the axis is the last one of samples with `dimensions` axes."""
        need(self.axis in (-1, dimensions), f"axis must be -1, not {self.axis}: {_LAST_AXIS}")
