# SPDX-License-Identifier: Apache-2.0
"""The translation of UNIDIRECTIONAL_SEQUENCE_LSTM with int8 activations and int16 cells."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.moves import check_size, moved
from systola.compiler.operations import (
    Gate,
    Lstm,
    Requantisation,
    Value,
    scalar_requantisation,
)
from systola.compiler.quantise import folded_bias, to_single
from systola.compiler.tflite.fully_connected import bias_values, multiplier
from systola.compiler.tflite.graph import Operator, Tensor, need_type
from systola.compiler.tflite.scope import Scope
from systola.compiler.tflite.translate_moves import join

# These are positions among the operator's inputs, from 0 on. Each gate has input weights, recurrent
# weights and biases. The first three positions are for the input gate. The next three positions
# after each of them are for the other gates, in the order of _GATES.
_INPUT_WEIGHTS, _RECURRENT_WEIGHTS, _BIASES = 1, 5, 12
_PEEPHOLES, _PROJECTION, _NORMALISATION = range(9, 12), range(16, 18), range(20, 24)
_HIDDEN_STATE, _CELL_STATE = 18, 19
_GATES = ("input", "forget", "cell", "output")
_HIDDEN_SCALE = 4
"""Index, from 0, of the intermediate tensor that has the scale of the hidden state."""

GATE_FRACTION = 12
"""Number of fractional bits of a gate's int16 sum, the argument of sigmoid or tanh."""


def translate_lstm(scope: Scope, operator: Operator) -> None:
    """Translate an LSTM over a whole sequence, with int8 inputs and int16 gates and cells, without
    peepholes, projection and normalisation.

    Raises ModelError for an LSTM with one of these three.
    """
    options = operator.options
    for what, positions in (
        ("peepholes", _PEEPHOLES),
        ("a projection", _PROJECTION),
        ("normalisation", _NORMALISATION),
    ):
        if any(scope.optional(operator, position) is not None for position in positions):
            raise ModelError(f"{what} in an LSTM is not supported")
    if options.get("FusedActivationFunction") != "TANH":
        raise ModelError("an activation other than TANH is not supported")
    if options.get("DiagonalRecurrentTensors"):
        raise ModelError("diagonal recurrent weights are not supported")
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    # LiteRT never uses the scale of the result, as it has the scale of the hidden state. But LiteRT
    # refuses an LSTM with a result that has no scale, so this is refused here, too.
    if not len(result_tensor.scales):
        raise ModelError("its result has no scale")
    hidden = scope.tensor(operator, _HIDDEN_STATE)
    cell = scope.tensor(operator, _CELL_STATE)
    need_type("hidden state", hidden, "int8")
    need_type("cell state", cell, "int16")
    if len(source.shape) != 3 or source.shape[:-1] != result.shape[:-1]:
        raise ModelError(f"it makes shape {result.shape} of sequences of shape {source.shape}")
    time_major = bool(options.get("TimeMajor"))
    if time_major and scope.repeat > 1:
        raise ModelError("its first dimension is time, which no sample has a part of")
    bits = math.frexp(cell.scale)[1] - 1
    # LiteRT has a tanh for cells of 0 to 6 integer bits. For other cells it calculates no tanh. The
    # buffer for the tanh then still holds the input gate, so LiteRT takes the input gate instead.
    has_tanh = 0 <= 15 + bits <= 6
    if cell.scale != 2.0**bits or not -25 <= bits <= 0 or 15 + bits in (5, 6):
        raise ModelError(f"cells with the scale {cell.scale} are not supported")
    # LiteRT copies results into the hidden state unchanged, so both have the same scale. It is in
    # the intermediate tensor _HIDDEN_SCALE, if there is one. The intermediate tensors 0 to 3 are
    # for normalisation only.
    inner = hidden
    if len(operator.intermediates) > _HIDDEN_SCALE:
        inner = scope.graph.tensors[operator.intermediates[_HIDDEN_SCALE]]
    clip = float(options.get("CellClip", 0.0))
    limit = int(min(clip / cell.scale, 32767)) if clip > 0 else 0
    gates = [
        _gate(scope, operator, number, source_tensor, hidden, source.channels, result.channels)
        for number in range(4)
    ]
    # LiteRT calculates the factor from products to the hidden state's codes in float32.
    q, shift = multiplier(to_single(2.0**-30 / inner.scale))
    for part, made in _sequences(scope, operator, source, result, 1 if time_major else 0):
        node = Lstm(
            operator=str(operator),
            result=made,
            source=part,
            input_gate=gates[0],
            forget_gate=gates[1],
            cell_gate=gates[2],
            output_gate=gates[3],
            cell_bits=15 + bits,
            limit=limit,
            hidden=scalar_requantisation(q, shift, zero_point=inner.zero_point),
            start=hidden.zero_point,
            has_tanh=has_tanh,
        )
        scope.add(node)


def _sequences(
    scope: Scope, operator: Operator, source: Value, result: Value, axis: int
) -> Iterator[tuple[Value, Value]]:
    """Yield a value with the inputs and a value for the results of each sequence.

    The sequences follow each other along `axis` of `source`. After the last sequence, the values
    for results, which the caller must make, are joined to `result`.
    """
    if source.shape[axis] == 1:
        yield source, result
        return
    check_size(source)
    positions = np.arange(source.pixels * source.channels).reshape(source.shape)
    parts: list[Value] = []
    for number, origin in enumerate(np.split(positions, source.shape[axis], axis)):
        part = Value(f"{source.name}, sequence {number}", origin.shape)
        parts.append(Value(f"{result.name}, {number}", (*origin.shape[:-1], result.channels)))
        scope.add(*moved(str(operator), source, part, origin))
        yield part, parts[-1]
    join(scope, operator, parts, result, axis)


def _gate(
    scope: Scope,
    operator: Operator,
    number: int,
    source: Tensor,
    hidden: Tensor,
    inputs: int,
    cells: int,
) -> Gate:
    name = _GATES[number]
    bias = bias_values(scope.optional(operator, _BIASES + number), cells)
    input_weights, input_sums = _sums(
        f"input weights of the {name} gate",
        scope.tensor(operator, _INPUT_WEIGHTS + number),
        source,
        (cells, inputs),
        bias,
    )
    recurrent_weights, recurrent_sums = _sums(
        f"recurrent weights of the {name} gate",
        scope.tensor(operator, _RECURRENT_WEIGHTS + number),
        hidden,
        (cells, cells),
        np.zeros(cells, np.int64),
    )
    return Gate(
        input_weights=input_weights,
        input_sums=input_sums,
        recurrent_weights=recurrent_weights,
        recurrent_sums=recurrent_sums,
    )


def _sums(
    what: str,
    weights: Tensor,
    source: Tensor,
    shape: tuple[int, int],
    bias: NDArray[np.int64],
) -> tuple[NDArray[np.int8], Requantisation]:
    """Return the `weights` of one gate, inputs x cells, and the requantisation of their products.

    The weights are multiplied by the codes of `source`, and the sums get GATE_FRACTION fractional
    bits.
    """
    need_type(what, weights, "int8")
    if weights.data is None or weights.shape != shape:
        raise ModelError(f"its {what} should have the shape {shape}, not {weights.shape}")
    if bool(weights.zero_points.any()):
        raise ModelError(f"its {what} have a zero point other than 0, which is not supported")
    values: NDArray[np.int8] = np.ascontiguousarray(weights.data.T)
    product = to_single(weights.scale * source.scale)
    q, shift = multiplier(to_single(product * 2**GATE_FRACTION))
    cells = shape[0]
    return values, Requantisation(
        bias=folded_bias(bias, source.zero_point, values.sum(axis=0, dtype=np.int64)),
        multiplier=np.full(cells, q, np.int32),
        shift=np.full(cells, shift, np.int32),
    )
