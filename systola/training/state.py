# SPDX-License-Identifier: Apache-2.0
"""Holds the learnt numbers of a network: masters, velocities, moments, and their fraction bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from systola.training.checks import items, numbers, whole
from systola.training.errors import TrainingError
from systola.training.initializers import fresh
from systola.training.moments import Decays, Moments
from systola.training.numbers import (
    LEAST_MASTER_BITS,
    MOST_INPUT_BITS,
    MOST_MASTER_BITS,
    Floats,
    codes,
    master_bits,
    velocity_bits,
)
from systola.training.passes import most_unit_bits
from systola.training.stages import EMBEDDING, Recurrence, Stage, recurrent_tensor, tensors

_Each = TypeVar("_Each")
Codes = NDArray[np.int16]
_OF_STATISTICS = -1
"""Number that marks the moving mean and variance of stage 0 in a list of tensors' numbers. The mark
of stage n is lower by n. Marks are negative, and numbers of tensors are not."""
_UNIT_BITS = 16
"""Largest difference between the number of fraction bits of units and the most that units can
have."""


@dataclass(frozen=True)
class State:
    """The learnt numbers of a network: masters of each tensor, and velocities or moments.

    The masters of a tensor have a row for each input, then perhaps a row of biases, and a column
    for each unit.
    """

    masters: tuple[Codes, ...]
    velocities: tuple[Codes, ...]
    """Velocities of each tensor; empty if there is no momentum."""
    bits: tuple[int, ...]
    """Fraction bits of the masters (int16 weights) of each tensor."""
    unit_bits: tuple[int, ...] = ()
    """Numbers of fraction bits of the units of all stages but the last, as in the last epoch. Empty
    before the first epoch."""
    velocity_bits: int = 0
    """Number of fraction bits that velocities have more than the masters."""
    moments: Moments | None = None
    """Moments of Adam or RMSprop; None for other optimisers."""
    statistics: tuple[NDArray[np.float32], ...] = ()
    """Moving means and variances of each BatchNormalization, (2, channels)."""

    @property
    def beside(self) -> tuple[tuple[Codes, ...], ...]:
        """Tensors that are kept beside the masters: velocities, or first moments and roots of
        second moments.
        """
        kept = (self.moments.first, self.moments.roots) if self.moments else (self.velocities,)
        return tuple(each for each in kept if each)

    def for_optimizer(self, momentum: float, decays: Decays | None) -> State:
        """Return the state with the velocities, or moments, that an optimiser needs.

        An optimiser without momentum and decays needs no velocities or moments. Missing velocities
        and moments become zeros, and so do moments with other decays.
        """
        if decays:
            return replace(self._for_momentum(0.0), moments=self._moments(decays))
        return replace(self._for_momentum(momentum), moments=None)

    def _moments(self, decays: Decays) -> Moments:
        if self.moments and self.moments.decays == decays:
            return self.moments
        fresh = tuple(map(np.zeros_like, self.masters))
        return Moments(fresh if decays.first else (), fresh, (), 0, decays)

    def _for_momentum(self, momentum: float) -> State:
        if not momentum:
            return replace(self, velocities=(), velocity_bits=0)
        bits = velocity_bits(momentum)
        more = bits - self.velocity_bits
        kept = tuple(codes(each.astype(np.float64), more, np.int16) for each in self.velocities)
        fresh = tuple(map(np.zeros_like, self.masters))
        return replace(self, velocities=kept or fresh, velocity_bits=bits)


def master_shapes(stages: Sequence[Stage]) -> list[tuple[int, int]]:
    """Return the shape of each tensor of masters, which is also the shape of velocities and
    moments.
    """
    return [(tensor.inputs + tensor.biased, tensor.units) for tensor in tensors(stages)]


def check_bits(
    stages: Sequence[Stage],
    bits: Sequence[int],
    unit_bits: Sequence[int],
    input_bits: int | None,
) -> None:
    """Check the fraction bits of a network's masters (`bits`), units and samples.

    `input_bits` is the number of fraction bits of the samples, None before the first samples.
    Raises TrainingError for bits that a network of these stages cannot have.
    """
    count = len(tensors(stages))
    if len(bits) != count:
        raise TrainingError(f"bits has {len(bits)} numbers, not {count}")
    for each in bits:
        whole("each of bits", each, LEAST_MASTER_BITS, MOST_MASTER_BITS)
    if unit_bits and len(unit_bits) != len(stages) - 1:
        raise TrainingError(f"unit_bits has {len(unit_bits)} numbers, not {len(stages) - 1}")
    for each, stage in zip(unit_bits, stages, strict=False):
        most = most_unit_bits(stage)
        whole("each of unit_bits", each, most - _UNIT_BITS, most)
    if input_bits is not None:
        words = bool(stages[0].lstm and stages[0].lstm.vocabulary)
        whole("input_bits", input_bits, 0, 0 if words else MOST_INPUT_BITS)


def weights(stages: Sequence[Stage], state: State) -> list[Floats]:
    """Return all weights in Keras's order, kernels as (inputs, units).

    The biases of a layer follow its kernel. An LSTM has embeddings, kernel, recurrent kernel,
    biases. The biases of a GRU are an array of two rows: for the kernel, then for the recurrent
    kernel.
    """
    found: list[list[Floats]] = []
    for tensor, values, bits in zip(tensors(stages), state.masters, state.bits, strict=True):
        kernel = _numbers(values[: tensor.inputs], bits)
        biases = [_numbers(values[-1], bits - tensor.bias_less)] if tensor.biased else []
        found.append([kernel, *biases])
    normalized = [number for number, stage in enumerate(stages) if stage.scales]
    for number, statistics in zip(normalized, state.statistics, strict=True):
        found[number] += list(statistics)
    return list(_keras_order(stages, _with_biases(stages, found), _stacked))


def as_keras(stages: Sequence[Stage], weights: Sequence[Floats]) -> list[Floats]:
    """Reshape weights, given in Keras's order, to the shapes that Keras has."""
    return [each.reshape(shape) for each, shape in zip(weights, keras_shapes(stages), strict=True)]


def keras_shapes(stages: Sequence[Stage]) -> list[tuple[int, ...]]:
    """Return the shapes that all weights have in Keras, in Keras's order."""
    found: list[list[tuple[int, ...]]] = []
    for number, tensor in enumerate(tensors(stages)):
        stage = stages[number] if number < len(stages) else None
        kernel = stage.kernel_shape if stage else (tensor.inputs, tensor.units)
        found.append([kernel, (tensor.units,)] if tensor.biased else [kernel])
        if stage and stage.scales:
            found[-1] += [kernel, kernel]
    return list(_keras_order(stages, _with_biases(stages, found), lambda one, _: (2, *one)))


def _with_biases(
    stages: Sequence[Stage], found: Sequence[Sequence[_Each]]
) -> Sequence[Sequence[_Each]]:
    """Return the items of each tensor without the item of its biases, if the stage learns no
    biases.
    """
    without = [number for number, stage in enumerate(stages) if not stage.use_bias]
    without += [recurrent_tensor(stages, number) for number in without if stages[number].lstm]
    return [each[: 1 if number in without else None] for number, each in enumerate(found)]


def _keras_order(
    stages: Sequence[Stage],
    found: Sequence[Sequence[_Each]],
    both: Callable[[_Each, _Each], _Each],
) -> Iterable[_Each]:
    """Return the items of all tensors in Keras's order.

    `found` has an item for the kernel of each tensor, and perhaps an item for its biases. `both`
    joins the two items for the biases of a GRU.
    """
    ordered: list[_Each] = []
    for number, stage in enumerate(stages):
        if stage.join:
            continue
        kernel, *biases = found[number]
        recurrent: Sequence[_Each] = ()
        if stage.lstm:
            recurrent = found[recurrent_tensor(stages, number)]
            if stage.lstm.vocabulary:
                ordered += found[len(stages) + EMBEDDING]
            if len(recurrent) > 1:
                recurrent, biases = recurrent[:1], [both(biases[0], recurrent[1])]
        ordered += [kernel, *recurrent, *biases]
    return ordered


def _stacked(one: Floats, other: Floats) -> Floats:
    return np.stack((one, other))


def _numbers(values: Codes, bits: int) -> Floats:
    return (values / 2.0**bits).astype(np.float32)


def from_weights(stages: Sequence[Stage], weights: Sequence[Floats]) -> State:
    """Return the state with the masters that are nearest to given weights.

    The weights are in Keras's order and shapes. Raises TrainingError for other shapes, and for
    weights that are too large.
    """
    shapes = keras_shapes(stages)
    weights = [numbers(each, "an array of weights") for each in items("weights", weights, "arrays")]
    given = [each.shape for each in weights]
    if given != shapes:
        raise TrainingError(f"weights of shapes {given} do not fit, {shapes} do")
    parts = tensors(stages)
    # Numbers of tensors, put in Keras's order, show which tensor each array belongs to.
    owners: list[list[tuple[int, ...]]] = [
        [(number,)] * (1 + tensor.biased) for number, tensor in enumerate(parts)
    ]
    normalized = [number for number, stage in enumerate(stages) if stage.scales]
    for number in normalized:
        owners[number] += [(_OF_STATISTICS - number,)] * 2
    order = _keras_order(stages, _with_biases(stages, owners), lambda one, other: one + other)
    # The biases of a GRU belong to two tensors.
    owned = [
        (owner, part)
        for found, each in zip(order, weights, strict=True)
        for owner, part in zip(found, each if len(found) > 1 else [each], strict=True)
    ]
    joined: list[Floats] = []
    for number, tensor in enumerate(parts):
        own = [each for owner, each in owned if owner == number]
        kernel, *biases = own or [np.zeros((0, tensor.units))]
        if tensor.biased and not biases:
            biases = [np.zeros(tensor.units)]
        rows = np.reshape(kernel, (-1, tensor.units))
        scale = 2.0**-tensor.bias_less
        joined.append(np.concatenate((rows, *(scale * np.reshape(b, (1, -1)) for b in biases))))
    bits = tuple(map(master_bits, joined))
    if min(bits) < LEAST_MASTER_BITS:
        raise TrainingError("weights are too large to be masters")
    masters = tuple(codes(each, b, np.int16) for each, b in zip(joined, bits, strict=True))
    statistics = [
        np.stack([each for owner, each in owned if owner == _OF_STATISTICS - number])
        for number in normalized
    ]
    kept = tuple(each.astype(np.float32) for each in statistics)
    return State(masters, (), bits, statistics=kept)


def glorot(stages: Sequence[Stage], seed: int) -> State:
    """Return a state with fresh weights, drawn by the initialisers of each stage.

    The biases of recurrent layers are Keras's.
    """
    rng = np.random.default_rng(seed)
    weights: list[Floats] = []
    for stage in stages:
        if stage.join:
            continue
        if stage.lstm:
            weights += _lstm(stage, stage.lstm, rng)
            continue
        shapes = stage.kernel_shape, (stage.units,)
        for name, shape in zip(stage.initializers, shapes[: 1 + stage.use_bias], strict=False):
            weights.append(fresh(name, rng, shape, *stage.counted))
        if stage.scales:
            weights += [np.zeros(stage.units), np.ones(stage.units)]
    return from_weights(stages, weights)


def _lstm(stage: Stage, lstm: Recurrence, rng: np.random.Generator) -> list[Floats]:
    """Draw fresh weights of an LSTM or GRU: embeddings, kernel, recurrent kernel and biases.

    The biases of an LSTM's forget gate are ones, all other biases are zeros.
    """
    kernel, recurrent, *words = stage.initializers
    found: list[Floats] = []
    for name in words:
        shape = lstm.vocabulary, stage.inputs
        found.append(fresh(name, rng, shape, *shape))
    shapes = (stage.inputs, stage.units), (lstm.units, stage.units)
    for name, shape in zip((kernel, recurrent), shapes, strict=True):
        found.append(fresh(name, rng, shape, *shape))
    biases = np.zeros((2, stage.units) if lstm.gru else stage.units)
    if not lstm.gru:
        biases[lstm.units : 2 * lstm.units] = 1
    return [*found, biases] if stage.use_bias else found
