# SPDX-License-Identifier: Apache-2.0
"""A trained network as one to be compiled for any machine: its int8 weights, its exponents, as
they are.

The stages are those of a prediction, and so are all results: products of the weights that were
trained, shifted as in training, logits of int16.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, prod

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.host_stage import (
    DequantiseWide,
    HostFunction,
    HostStage,
    QuantiseEven,
    RealSoftmax,
    View,
)
from systola.compiler.layer import MAX_LEFT, MAX_RIGHT, Layer
from systola.compiler.operations import Product, Value
from systola.compiler.partition import Item, Translation
from systola.training.checkpoint import Checkpoint, read
from systola.training.errors import TrainingError
from systola.training.layers import Input
from systola.training.numbers import LOGIT_BITS, MASTER_SHIFT
from systola.training.stages import Stage, stages
from systola.training.writer import HALF


def translate_trained(content: bytes) -> Translation:
    """The network of what Sequential.save has written.

    Raises ModelError for anything else, and for a network that has never been trained.
    """
    try:
        found = read(content)
        return _Translator(found, stages(found.layers, None)).translation()
    except TrainingError as error:
        raise ModelError(str(error)) from None


@dataclass
class _Translator:
    found: Checkpoint
    stages: tuple[Stage, ...]

    def translation(self) -> Translation:
        bits, state = self.found.input_bits, self.found.state
        if bits is None or len(state.unit_bits) != len(self.stages) - 1:
            raise ModelError("it has never been trained, so its units have no scale yet")
        self.items: list[Item] = []
        given = next(layer.shape for layer in self.found.layers if isinstance(layer, Input))
        source = Value("x", (1, *given), "float32")
        row = Value("x as a row", (1, prod(given)), "float32")
        self._host("Flatten", source, row, View())
        value = Value("x as codes", row.shape)
        self._host("Quantise", row, value, QuantiseEven(2.0**-bits, 0))
        hidden = zip(self.stages, state.masters, state.bits, strict=True)
        last = len(self.stages) - 1
        for number, (stage, masters, master_bits) in enumerate(hidden):
            sums, one = bits + master_bits - MASTER_SHIFT, floor(2.0**bits + 0.5)
            bits = LOGIT_BITS if number == last else state.unit_bits[number]
            layer = _layer(stage, _weights(masters), one, sums - bits)
            wide = number == last
            result = Value(f"stage {number}", (2 if wide else 1, stage.units))
            self.items.append(
                Product(
                    operator=f"Dense {number}",
                    result=result,
                    source=value,
                    layer=layer,
                    wide=wide,
                )
            )
            value = result
        return self._ended(source, value)

    def _ended(self, source: Value, codes: Value) -> Translation:
        units = codes.channels
        y = Value("y", (1, units), "float32")
        if self.stages[-1].softmax:
            logits = Value("logits", y.shape, "float32")
            self._host("Dequantise", codes, logits, DequantiseWide(2.0**-LOGIT_BITS))
            self._host("Softmax", logits, y, RealSoftmax(units))
        else:
            self._host("Dequantise", codes, y, DequantiseWide(2.0**-LOGIT_BITS))
        return Translation((source,), (y,), tuple(self.items), 1, 0)

    def _host(self, operator: str, source: Value, result: Value, function: HostFunction) -> None:
        stage = HostStage(operator=operator, sources=(source,), result=result, function=function)
        self.items.append(stage)


def _weights(masters: NDArray[np.int16]) -> NDArray[np.int8]:
    """As the array multiplies with them: rounded, halves upwards."""
    rounded = (masters.astype(np.int32) + (1 << MASTER_SHIFT - 1)) >> MASTER_SHIFT
    return np.clip(rounded, -128, 127).astype(np.int8)


def _layer(stage: Stage, weights: NDArray[np.int8], one: int, right: int) -> Layer:
    """The product of a stage; `one` is the code of the input of the bias, `right` the shift."""
    units = stage.units
    return Layer(
        weights=weights[:-1],
        bias=one * weights[-1].astype(np.int32),
        multiplier=np.full(units, HALF, np.int32),
        shift=np.full(units, min(max(1 - right, -MAX_RIGHT), MAX_LEFT), np.int32),
        rounding=Rounding.SINGLE,
        function=Function.RELU if stage.relu else Function.NONE,
    )
