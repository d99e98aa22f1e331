# SPDX-License-Identifier: Apache-2.0
"""Translates a trained network for the compiler, which compiles it for any machine.

The int8 weights and the fraction bits stay as they are. So all results have the bytes of predict().
The sums are shifted as in training, and the logits are int16.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Reduction, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.host_stage import (
    DequantiseWide,
    Embedding,
    HostFunction,
    HostStage,
    QuantiseEven,
    RealRescale,
    RealSigmoid,
    RealSoftmax,
    View,
)
from systola.compiler.layer import MAX_LEFT, MAX_RIGHT, Layer
from systola.compiler.operations import (
    Convolution,
    DepthwiseConvolution,
    Gate,
    Lstm,
    Pooling,
    Product,
    Requantisation,
    Reshape,
    Slice,
    Value,
    Window,
    scalar_requantisation,
)
from systola.compiler.partition import Item, Translation
from systola.training.building import stages
from systola.training.checkpoint import Checkpoint, read
from systola.training.curves import CURVES
from systola.training.errors import TrainingError
from systola.training.joined_network import joined
from systola.training.layers import Input, Rescaling
from systola.training.moves import mean_entry
from systola.training.numbers import LOGIT_BITS, MASTER_SHIFT
from systola.training.passes import STATE_BITS
from systola.training.recurrent_base import CELL_BITS, CELL_INTEGER_BITS
from systola.training.stages import (
    EMBEDDING,
    GATES,
    Recurrence,
    Stage,
    recurrent_tensor,
    takes,
)
from systola.training.windows import Window as OurWindow
from systola.training.writer import HALF


def translate_trained(content: bytes) -> Translation:
    """Return the translated network of a file that Sequential.save has written.

    `content`: the bytes of the file. Raises ModelError for anything else, and for a network that
    has never been trained.
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
    items: list[Item] = field(default_factory=list[Item])

    def translation(self) -> Translation:
        bits, state = self.found.input_bits, self.found.state
        if any(stage.normalized for stage in self.stages):
            raise ModelError(
                "it has a BatchNormalization, which only predict() runs: a network without one "
                "compiles"
            )
        if any(stage.lstm and stage.lstm.gru for stage in self.stages):
            raise ModelError(
                "it has a GRU, which only predict() runs: a network with LSTM compiles"
            )
        if bits is None or len(state.unit_bits) != len(self.stages) - 1:
            raise ModelError("it has never been trained, so its units have no scale yet")
        given = next(layer.shape for layer in self.found.layers if isinstance(layer, Input))
        source = value = Value("x", (1, *given), "float32")
        first = self.stages[0]
        for number, layer in enumerate(self.found.layers):
            if isinstance(layer, Rescaling):
                scaled = Value(f"x rescaled {number}", value.shape, "float32")
                function = RealRescale(layer.scale, layer.offset)
                value = self._host("Rescaling", value, scaled, function)
        if first.lstm:
            if first.lstm.vocabulary:
                source = value = replace(source, dtype="int32")
        else:
            if first.row:
                shape = (1, 1, *given)
                value = self._host("Reshape", value, Value("x as a map", shape, "float32"), View())
            if not first.window and len(given) > 1:
                row = Value("x as a row", (1, first.inputs), "float32")
                value = self._host("Flatten", value, row, View())
            value = self._host("Quantise", value, Value("codes", value.shape), _quantise(bits))
        results = [(value, bits)]
        for number, stage in enumerate(self.stages):
            value, bits = results[takes(self.stages, number)[0]]
            if stage.lstm:
                results.append(self._lstm(number, stage, stage.lstm, value, bits))
                continue
            if stage.join:
                parts, bits = [results[at] for at in stage.sources], state.unit_bits[number]
                results.append((joined(self.items, number, stage, parts, bits), bits))
                continue
            weights = _weights(state.masters[number])
            sum_bits = bits + state.bits[number] - MASTER_SHIFT
            one = floor(2.0**bits + 0.5) * weights[-1].astype(np.int32)
            last = number == len(self.stages) - 1
            curve = CURVES[stage.curve] if stage.curve else None
            bits = LOGIT_BITS if last else state.unit_bits[number]
            output = Requantisation(
                bias=one,
                multiplier=np.full(stage.units, HALF, np.int32),
                shift=_shifts(stage.units, sum_bits - (curve.sum_bits if curve else bits)),
                rounding=Rounding.SINGLE,
                function=_function(stage),
                table=curve.values().tobytes() if curve else None,
            )
            if stage.window:
                inputs = (-1,) if not stage.depthwise else ()
                kernel = weights[:-1].reshape(*stage.window.kernel, *inputs, stage.units)
                value = self._convolution(number, stage, value, kernel, output)
            else:
                value = self._product(number, value, weights[:-1], output, wide=last)
            results.append((value, bits))
        y = Value("y", (1, self.stages[-1].units), "float32")
        last = self.stages[-1]
        end = last.softmax or last.sigmoid
        logits = Value("logits", y.shape, "float32") if end else y
        self._host("Dequantise", value, logits, DequantiseWide(2.0**-LOGIT_BITS))
        if last.softmax:
            self._host("Softmax", logits, y, RealSoftmax(y.channels))
        if last.sigmoid:
            self._host("Sigmoid", logits, y, RealSigmoid())
        return Translation((source,), (y,), tuple(self.items), 1, 0)

    def _host(self, operator: str, source: Value, result: Value, function: HostFunction) -> Value:
        stage = HostStage(operator=operator, sources=(source,), result=result, function=function)
        self.items.append(stage)
        return result

    def _lstm(
        self, number: int, stage: Stage, lstm: Recurrence, source: Value, bits: int
    ) -> tuple[Value, int]:
        """Append an LSTM; return the value that the next stage takes, and its fraction bits.

        `bits`: the fraction bits of the source, unless the source is words.
        """
        state, codes = self.found.state, Value("codes", (1, lstm.steps, stage.inputs))
        if lstm.vocabulary:
            tensor = len(self.stages) + EMBEDDING
            bits = state.bits[tensor] - MASTER_SHIFT
            self._host("Embedding", source, codes, Embedding(_weights(state.masters[tensor])))
        elif number:
            codes = source
        else:
            self._host("Quantise", source, codes, _quantise(bits))
        masters, units = state.masters[number], lstm.units
        tensor = recurrent_tensor(self.stages, number)
        kernel, recurrent = _weights(masters[:-1]), _weights(state.masters[tensor])
        first, again = (
            _halved(units, sums - MASTER_SHIFT - CELL_BITS)
            for sums in (bits + state.bits[number], STATE_BITS + state.bits[tensor])
        )
        gates = [
            Gate(
                input_weights=kernel[:, part],
                input_sums=first,
                recurrent_weights=recurrent[:, part],
                recurrent_sums=again,
            )
            for part in (slice(units * n, units * (n + 1)) for n in range(len(GATES)))
        ]
        biases = _divided(masters[-1], state.bits[number] - stage.tensor.bias_less - CELL_BITS)
        unit_bits, operator = state.unit_bits[number], f"LSTM {number}"
        states = Value(f"states {number}", (1, lstm.steps, units))
        self.items.append(
            Lstm(
                operator=operator,
                result=states,
                source=codes,
                input_gate=gates[0],
                forget_gate=gates[1],
                cell_gate=gates[2],
                output_gate=gates[3],
                cell_bits=CELL_INTEGER_BITS,
                limit=0,
                hidden=_halved(1, STATE_BITS - unit_bits),
                start=0,
                biases=biases.reshape(len(GATES), units),
            )
        )
        if lstm.sequences:
            return states, unit_bits
        result, start = Value("last state", (1, 1, units)), lstm.steps - 1
        self.items.append(
            Slice(operator=operator, result=result, source=states, axis=1, start=start)
        )
        return result, unit_bits

    def _convolution(
        self,
        number: int,
        stage: Stage,
        source: Value,
        weights: NDArray[np.int8],
        output: Requantisation,
    ) -> Value:
        assert stage.window
        value = Value(f"stage {number}", (1, *stage.window.out, stage.units))
        about: dict[str, Any] = {"result": value, "source": source, "weights": weights}
        about |= {"window": _window(stage.window), "fill": 0, "output": output}
        if stage.depthwise:
            operator = f"DepthwiseConv2D {number}"
            self.items.append(DepthwiseConvolution(operator=operator, **about))
        else:
            self.items.append(Convolution(operator=f"Conv2D {number}", **about))
        if stage.pool is None:
            return value
        small = Value(f"pool {number}", (1, *stage.pool.out, stage.units))
        how: dict[str, Any] = {"reduction": Reduction.MAX}
        if stage.average:
            how = {"reduction": Reduction.SUM, "output": _mean(stage.pool)}
        self.items.append(
            Pooling(
                operator=f"pooling {number}",
                result=small,
                source=value,
                window=_window(stage.pool),
                **how,
            )
        )
        return small

    def _product(
        self,
        number: int,
        source: Value,
        weights: NDArray[np.int8],
        output: Requantisation,
        *,
        wide: bool,
    ) -> Value:
        if len(source.shape) > 2:
            row = Value(f"stage {number} as a row", (1, len(weights)))
            self.items.append(Reshape(operator="Flatten", result=row, source=source))
            source = row
        value = Value(f"stage {number}", (2 if wide else 1, weights.shape[1]))
        layer = Layer(
            weights=weights,
            bias=output.bias,
            multiplier=output.multiplier,
            shift=output.shift,
            rounding=output.rounding,
            function=output.function,
            table=output.table,
        )
        operator = f"Dense {number}"
        product = Product(operator=operator, result=value, source=source, layer=layer, wide=wide)
        self.items.append(product)
        return value


def _function(stage: Stage) -> Function:
    if stage.curve:
        return Function.TABLE
    return Function.RELU if stage.relu else Function.NONE


def _quantise(bits: int) -> HostFunction:
    return QuantiseEven(2.0**-bits, 0)


def _window(window: OurWindow) -> Window:
    top, left = window.before
    return Window(kernel=window.kernel, stride=window.stride, first=(-top, -left), out=window.out)


def _weights(masters: NDArray[np.int16]) -> NDArray[np.int8]:
    """Return masters rounded to int8 weights, halves upwards, as the array multiplies with them."""
    rounded = (masters.astype(np.int32) + (1 << MASTER_SHIFT - 1)) >> MASTER_SHIFT
    return np.clip(rounded, -128, 127).astype(np.int8)


def _mean(window: OurWindow) -> Requantisation:
    """Return the requantisation that makes the means of windows from their sums."""
    entry = mean_entry(window)
    shift = entry.left - entry.right
    return scalar_requantisation(entry.multiplier, shift, rounding=Rounding.SINGLE)


def _halved(count: int, right: int) -> Requantisation:
    """Return the requantisation that divides by 2^right, halves upwards."""
    return Requantisation(
        bias=np.zeros(count, np.int32),
        multiplier=np.full(count, HALF, np.int32),
        shift=_shifts(count, right),
        rounding=Rounding.SINGLE,
    )


def _divided(masters: NDArray[np.int16], right: int) -> NDArray[np.int16]:
    """Return int16 masters divided by 2^right, halves upwards, limited to the range of int16."""
    wide = masters.astype(np.int64)
    moved = (wide + (1 << right >> 1)) >> right if right > 0 else wide << -right
    return np.clip(moved, -(1 << 15), (1 << 15) - 1).astype(np.int16)


def _shifts(count: int, right: int) -> NDArray[np.int32]:
    """Return `count` equal shifts. With multiplier HALF, which divides by 2, they divide by
    2^right.
    """
    return np.full(count, min(max(1 - right, -MAX_RIGHT), MAX_LEFT), np.int32)
