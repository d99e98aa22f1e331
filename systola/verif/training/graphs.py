# SPDX-License-Identifier: Apache-2.0
"""Random networks with branches and BatchNormalization, for tests of training."""

from __future__ import annotations

import random
from typing import Any

from systola.training import (
    GRU,
    LSTM,
    Add,
    BatchNormalization,
    Concatenate,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAveragePooling2D,
    Input,
    MaxPooling2D,
    ReLU,
    TrainingError,
)
from systola.training.building import stages
from systola.training.functional import linked

_CURVES = (None, "relu", "tanh")


def drawn_graph(rng: random.Random, classes: int) -> list[Any]:
    """Return the layers of a random network with branches.

    The network works on feature maps, on rows of numbers, or on sequences with an LSTM or GRU.
    """
    while True:
        try:
            layers = _Graph(rng, rng.choice(("maps", "rows", "rows", "steps"))).layers(classes)
            stages(layers, None)
            return layers
        except TrainingError:
            continue  # some results cannot be joined, and some networks have too many layers


class _Graph:
    """A random network that grows layer by layer.

    All results of the network have the same width, so that they can be added.
    """

    def __init__(self, rng: random.Random, kind: str) -> None:
        self._rng = rng
        self._maps = kind == "maps"
        self._width = rng.randint(2, 9)
        shape = {"maps": (4, 3), "rows": (), "steps": (3,)}[kind]
        self._input = Input((*shape, rng.randint(1, 9)))
        self._results: list[Any] = []
        if kind == "steps":
            layer = rng.choice((LSTM, GRU))(self._width)
            self._results.append(self._dropped(layer(self._input)))

    def layers(self, classes: int) -> list[Any]:
        """Add some random layers and joins, and then the end of the network; return all layers."""
        rng = self._rng
        if not self._results:
            self._results.append(self._weighted())
        for _ in range(rng.randint(1, 3)):
            makers = (self._weighted, self._sum, self._both)
            self._results.append(rng.choice(makers)())
        end = self._results[-1]
        if self._maps:
            flat = Flatten()(end)
            small = GlobalAveragePooling2D()(Conv2D(4, 1)(self._any()))
            pooled = Flatten()(MaxPooling2D((2, 3), rng.choice((None, 1)))(Conv2D(3, 1)(end)))
            end = rng.choice((flat, small, pooled, Concatenate()([flat, small])))
        elif self._chance(0.5):
            end = Concatenate()([end, self._any()])
        return linked(self._input, Dense(classes, use_bias=rng.random() < 0.7)(end))

    def _any(self) -> Any:
        return self._rng.choice(self._results)

    def _dropped(self, result: Any) -> Any:
        return Dropout(self._rng.choice((0.1, 0.4)))(result) if self._chance(0.3) else result

    def _chance(self, part: float) -> bool:
        return self._rng.random() < part

    def _weighted(self) -> Any:
        rng = self._rng
        given = rng.choice([*self._results, self._input])
        how: dict[str, Any] = {"activation": rng.choice(_CURVES), "use_bias": self._chance(0.7)}
        layer: Any = Dense(self._width, **how)
        if self._maps:
            layer = Conv2D(self._width, rng.randint(1, 3), padding="same", **how)
        made = layer(given)
        if self._maps and self._chance(0.3):
            made = DepthwiseConv2D(2, padding="same")(made)
        return self._normalized(made)

    def _normalized(self, made: Any) -> Any:
        if self._chance(0.4):
            made = BatchNormalization(trainable=self._chance(0.8))(made)
            made = ReLU()(made) if self._chance(0.5) else made
        return self._dropped(made)

    def _sum(self) -> Any:
        made = Add()([self._any() for _ in range(self._rng.randint(2, 3))])
        return self._normalized(ReLU()(made) if self._chance(0.5) else made)

    def _both(self) -> Any:
        parts = [self._any() for _ in range(self._rng.randint(2, 3))]
        made = Concatenate()([*parts, self._input] if self._chance(0.3) else parts)
        return self._dropped(ReLU()(made) if self._chance(0.5) else made)
