# SPDX-License-Identifier: Apache-2.0
"""Computes a training step for one batch: forward pass, backward pass, and update of the
weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from systola.golden.training import held
from systola.training.curves import CURVES
from systola.training.fast.adaptive import AdaptiveUpdate
from systola.training.fast.arithmetic import (
    Integers,
    Narrow,
    Wide,
    measured,
    narrow,
    scaled,
    wide,
)
from systola.training.fast.branches import Branches, added, scaled_away, side_by_side
from systola.training.fast.curved import curved, masked, scale_up
from systola.training.fast.gru import Gru
from systola.training.fast.loss import Loss, gradient
from systola.training.fast.lstm import Gradients, Lstm, Recurring, Weights
from systola.training.fast.masks import dropout
from systola.training.fast.normal import Normalized, resting_sums, times_roots
from systola.training.fast.pooling import back, back_to_all, largest, means, routes
from systola.training.fast.stage import Products, one, weights
from systola.training.fast.update import PlainUpdate, Update
from systola.training.layout import places_of
from systola.training.normalization import Measured, Resting, resting
from systola.training.numbers import LOGIT_BITS, MASTER_SHIFT
from systola.training.passes import (
    PLAIN,
    STATE_BITS,
    curved_bits,
    gradient_scale,
    hidden_scale,
    most_unit_bits,
)
from systola.training.programs import COUNTER_STEP
from systola.training.recurrent_base import input_bits
from systola.training.stages import EMBEDDING, Normalization, recurrent_tensor, takes, takes_state
from systola.training.state import State
from systola.training.task import Task
from systola.training.writer import HALF, Entry


@dataclass
class Passed:
    """A record of the forward pass that the backward pass needs.

    A list has an item for each stage, or for each stage but the last.
    """

    products: list[Products | Recurring | None] = field(
        default_factory=list[Products | Recurring | None]
    )
    """Inputs and weights of each stage. None for stages without weights, which join or normalise.
    """
    bits: list[int] = field(default_factory=list[int])
    """Fraction bits of the inputs of each stage."""
    made: list[int] = field(default_factory=list[int])
    """Fraction bits of the units of each stage but the last."""
    masks: list[Narrow | None] = field(default_factory=list[Narrow | None])
    """Masks of the units of each stage but the last: 1 for units that pass, 0 for others. None if
    all units pass."""
    normalized: dict[int, Normalized] = field(default_factory=dict[int, Normalized])
    """Normalised batches of the stages that normalise, by number of the stage."""
    routes: list[Narrow | None] = field(default_factory=list[Narrow | None])
    """Marks of each stage's pooling, 1 for the first largest pixel of a window, else 0. A pooling
    of means has the mask of the pixels before the pooling instead. A stage without pooling has
    None."""


@dataclass
class Step:
    """A training step, or a prediction, for one batch.

    `columns` is the width of the array, which chooses the masks of Dropout.
    """

    task: Task
    state: State
    x: Integers
    """Samples, (samples, numbers): int8 codes, or words."""
    columns: int
    number: int | None = None
    """The number of the training step; None for a batch from which nothing is learnt."""
    passed: Passed = field(default_factory=Passed)

    def forward(self) -> Wide:
        """Compute the forward pass; return the logits, (samples, units)."""
        task, passed = self.task, self.passed
        results: list[tuple[Integers, int]] = [(self.x, task.input_bits)]
        last = len(task.stages) - 1
        for number in range(last):
            stage = task.stages[number]
            given = [results[at] for at in takes(task.stages, number)]
            x, bits = given[0]
            passed.bits.append(bits)
            if stage.normalized:
                results.append(self._normalized(number, stage.normalized, x, bits))
            elif stage.join:
                results.append(self._joined(number, given))
            elif stage.lstm:
                results.append(self._recurrent(number, x, bits))
            else:
                results.append(self._units(number, self._products(number, x, bits)))
            passed.made.append(results[-1][1])
        x, bits = results[takes(task.stages, last)[0]]
        passed.bits.append(bits)
        sums = self._products(last, x, bits).sums()
        return wide(scaled(sums, Entry(), held(self._sum_bits(last) - LOGIT_BITS - 1)))

    def unit_bits(self) -> list[int]:
        """Return the fraction bits of the units of all stages but the last one."""
        return self.passed.made

    def learn(self, found: Loss) -> State:
        """Compute the backward pass from the loss, and return the state after the update."""
        task, passed = self.task, self.passed
        update = (AdaptiveUpdate if task.decays else PlainUpdate)(task, self.state)
        below: Integers
        below, bits = gradient(found)
        branches = Branches(task.stages)
        for number in reversed(range(len(task.stages))):
            products, lstm = passed.products[number], task.stages[number].lstm
            if branches.there and number < len(task.stages) - 1 and not (lstm and lstm.sequences):
                below, bits = branches.gradient(number)
                below = self._through(number, below)
            if isinstance(products, Recurring):
                found_here = self._back_lstm(number, products, below, bits)
                self._update_lstm(number, update, products, found_here)
                below, bits = found_here.below, found_here.bits
                continue
            narrowed = below.astype(np.int8, copy=False)
            if products is None:
                if task.stages[number].normalized:
                    narrowed, bits = self._back_normalized(number, narrowed, bits)
                branches.back(number, narrowed, bits)
                continue
            sums, sum_bits = products.update(narrowed), passed.bits[number] + bits
            if branches.there:
                if at := takes(task.stages, number)[0]:
                    scale = gradient_scale(task.stages[at - 1]) if branches.alone(at) else PLAIN
                    branches.add(at, *self._below(number, products, narrowed, bits, scale))
            elif number:
                scale = gradient_scale(task.stages[number - 1])
                below, bits = self._below(number, products, narrowed, bits, scale)
                below = self._through(number - 1, below)
            if not task.stages[number].frozen:
                update.add(number, sums, task.master_bits[number], sum_bits)
        return update.state()

    # The methods below compute the forward pass.

    def _products(self, number: int, x: Integers, bits: int) -> Products:
        masters, stage = self.state.masters[number], self.task.stages[number]
        code = one(bits, wide=takes_state(self.task.stages, number)) if stage.use_bias else 0
        x = x.reshape(len(x), prod(stage.window.map) if stage.window else 1, -1)
        found = weights(masters)
        products = Products(stage, x, code, found[:-1], found[-1])
        self.passed.products.append(products)
        return products

    def _sum_bits(self, number: int) -> int:
        return held(self.passed.bits[number] + self.task.master_bits[number] - MASTER_SHIFT)

    def _units(self, number: int, products: Products) -> tuple[Narrow, int]:
        """Compute the units of a stage, which are inputs of the next stage; return them and their
        fraction bits.
        """
        stage, train = self.task.stages[number], self.number is not None
        sums = products.sums()
        q, shift, bits = self._unit_scale(number, self._sum_bits(number), sums)
        units = narrow(scaled(sums, Entry(q), shift), least=0 if stage.relu else -128)
        mask: Narrow | None = None
        if train and stage.relu:
            mask = (sums > 0).astype(np.int8)
        lines, marks = 1, None
        if stage.window:
            lines = prod(stage.map)
            maps = len(self.x), prod(stage.window.out), stage.units
            units = units.reshape(maps)
            mask = None if mask is None else mask.reshape(maps)
            if stage.average and stage.pool:
                if stage.curve:
                    units, mask = curved(stage, units)
                units, marks, mask = means(units, stage.pool), mask, None
            elif stage.pool:
                marks = routes(units, stage.pool) if train else None
                units = largest(units, stage.pool)
                mask = None if mask is None else largest(mask, stage.pool)
        self.passed.routes.append(marks)
        if stage.curve and not stage.average:
            units, mask = curved(stage, units)
        if train and stage.rate:
            units = scale_up(stage, units) if stage.curve else units
            drawn = self._drawn(number, (len(units), lines, stage.units)).reshape(units.shape)
            mask = drawn if mask is None else mask * drawn
            units = units * drawn
        self.passed.masks.append(mask)
        return units, bits

    def _unit_scale(self, number: int, sum_bits: int, sums: Integers) -> tuple[int, int, int]:
        """Return the multiplier and the shift from sums to units of a stage, and the fraction bits
        of the units.
        """
        task, train = self.task, self.number is not None
        stage = task.stages[number]
        if stage.curve:
            shift = held(sum_bits - CURVES[stage.curve].sum_bits - 1)
            return HALF, shift, curved_bits(stage, train)
        q, lost = hidden_scale(stage.rate, train)
        known = bool(task.unit_bits) and not train
        bits = task.unit_bits[number] if known else most_unit_bits(stage)
        shift = held(sum_bits - bits - lost)
        if not known:
            shift = measured(sums, shift)
        return q, shift, held(sum_bits - lost - shift)

    def _drawn(self, number: int, shape: tuple[int, int, int], step: int = 0) -> Narrow:
        assert self.number is not None
        counter = self.number * COUNTER_STEP % 2**32 + number
        stage, seed = self.task.stages[number], self.task.seed
        how = {"columns": self.columns, "seed": seed, "counter": counter}
        places = places_of(stage.segments, self.columns) if stage.join else None
        if places is None:
            return dropout(stage.rate, shape, **how, step=step)
        # The machine draws a random byte for each column of a block. Each part of the units has
        # blocks of its own, so bytes are also drawn for columns without a unit.
        whole = *shape[:2], int(places[-1]) + 1
        return dropout(stage.rate, whole, **how, step=step)[..., places]

    def measured(self) -> list[Measured]:
        """Return the means and variances that the stages which normalise have measured."""
        return [each.measured for each in self.passed.normalized.values()]

    def _normalized(
        self, number: int, settings: Normalization, x: Integers, bits: int
    ) -> tuple[Narrow, int]:
        """Normalise the inputs `x` of a stage; return the results and their fraction bits.

        A training step takes mean and variance of this batch. A prediction and a layer with
        trainable=False take the moving mean and variance.
        """
        units = self.task.stages[number].units
        rows = x.reshape(-1, units)
        if self.number is None or settings.frozen:
            sums, bits = resting_sums(rows, bits, self._resting(number))
        else:
            own = self.passed.normalized[number] = Normalized.of(rows, bits, settings.epsilon)
            sums, bits = own.sums, own.sum_bits
        _, shift, bits = self._unit_scale(number, bits, sums)
        made = narrow(scaled(sums, Entry(), shift))
        if own := self.passed.normalized.get(number):
            own.codes, own.bits = made, bits
        for kept in (self.passed.products, self.passed.masks, self.passed.routes):
            kept.append(None)
        return made.reshape(len(self.x), -1, units), bits

    def _joined(self, number: int, given: Sequence[tuple[Integers, int]]) -> tuple[Narrow, int]:
        """Compute an Add or Concatenate; `given` has each result with its fraction bits."""
        stage, train = self.task.stages[number], self.number is not None
        known = self.task.unit_bits[number] if self.task.unit_bits and not train else None
        shape = (len(self.x), prod(stage.map), -1) if stage.maps else (len(self.x), -1)
        codes = [(each.reshape(shape), bits) for each, bits in given]
        if stage.join == "add":
            sums, sum_bits = added(codes)
            q, shift, bits = self._unit_scale(number, sum_bits, sums)
            units = scaled_away(sums, q, shift)
        else:
            q, lost = hidden_scale(stage.rate, train)
            units, bits = side_by_side(codes, q, lost, known)
            sums = np.concatenate([each for each, _ in codes], axis=-1)
        units = narrow(units, least=0 if stage.relu else -128)
        mask = (sums > 0).astype(np.int8) if train and stage.relu else None
        if train and stage.rate:
            lines = prod(stage.map)
            drawn = self._drawn(number, (len(units), lines, stage.units)).reshape(units.shape)
            mask = drawn if mask is None else mask * drawn
            units = units * drawn
        self.passed.products.append(None)
        self.passed.masks.append(mask)
        self.passed.routes.append(None)
        return units, bits

    def _recurrent(self, number: int, x: Integers, given: int) -> tuple[Narrow, int]:
        """Compute an LSTM or GRU; return the inputs of the next stage, and their fraction bits.

        `x`: samples, or the states of another LSTM, (steps, samples, units), with `given` fraction
        bits.
        """
        task, state, stage = self.task, self.state, self.task.stages[number]
        assert stage.lstm
        size = stage.lstm.units
        tensor, kernel = recurrent_tensor(task.stages, number), weights(state.masters[number])
        found = Weights(
            kernel=kernel[:-1],
            recurrent=weights(state.masters[tensor][:size]),
            recurrent_biases=state.masters[tensor][size:].reshape(-1),
            biases=state.masters[number][-1],
            kernel_bits=task.master_bits[number],
            recurrent_bits=task.master_bits[tensor],
            input_bits=given if number else input_bits(task),
        )
        if number:
            steps = x.astype(np.int8)
        elif stage.lstm.vocabulary:
            steps = weights(state.masters[len(task.stages) + EMBEDDING])[x.T]
        else:
            steps = x.reshape(len(x), stage.lstm.steps, -1).swapaxes(0, 1).astype(np.int8)
        lstm = (Gru if stage.lstm.gru else Lstm)(found, np.ascontiguousarray(steps))
        self.passed.products.append(lstm)
        left = lstm.forward()
        left = lstm.all_states() if stage.lstm.sequences else left
        q, shift, bits = self._unit_scale(number, STATE_BITS, left)
        units = narrow(scaled(left, Entry(q), shift))
        if stage.lstm.sequences:
            lstm.state_bits = bits
        mask = None
        if self.number is not None and stage.rate:
            shape = len(self.x), 1, stage.lstm.units
            steps = range(stage.lstm.steps if stage.lstm.sequences else 1)
            drawn = np.stack([self._drawn(number, shape, step)[:, 0] for step in steps])
            mask = drawn if stage.lstm.sequences else drawn[0]
            units = units * mask
        self.passed.masks.append(mask)
        self.passed.routes.append(None)
        return units, bits

    # The methods below compute the backward pass.

    def _below(
        self, number: int, products: Products, above: Narrow, bits: int, scale: tuple[int, int]
    ) -> tuple[Narrow, int]:
        """Compute the gradient of the inputs of a stage; return it and its fraction bits.

        `above`: the gradient of the stage's sums. `scale`: see `passes.gradient_scale`.
        """
        q, lost = scale
        sums = products.below(above)
        shift = measured(sums, -8)
        bits = held(bits - shift + self.task.master_bits[number] - MASTER_SHIFT - lost)
        return narrow(scaled(sums, Entry(q), shift)), bits

    def _through(self, number: int, below: Narrow) -> Narrow:
        """Return the gradient of a stage's sums, (rows, units), from the gradient of the stage's
        result.
        """
        stage = self.task.stages[number]
        mask, marks = self.passed.masks[number], self.passed.routes[number]
        if mask is not None:
            below = below.reshape(mask.shape)
            below = below * mask if stage.average else masked(stage, below, mask)
        if stage.pool:
            below = below.reshape(len(self.x), -1, stage.units)
            if stage.average:
                below = back_to_all(below, stage.pool)
                below = below if marks is None else masked(stage, below, marks)
            elif marks is not None:
                below = back(below, marks, stage.pool)
        units = stage.lstm.units if stage.lstm else stage.units
        return below.reshape(-1, units)

    def _back_normalized(self, number: int, above: Narrow, bits: int) -> tuple[Narrow, int]:
        """Compute the gradient of the inputs of a stage that normalises, from the gradient of the
        stage's results.
        """
        if own := self.passed.normalized.get(number):
            return own.back(above, bits)
        codes = self._resting(number)
        return times_roots(above, bits, codes.root, codes.root_bits)

    def _resting(self, number: int) -> Resting:
        """Return the codes by which a stage normalises with moving means and variances."""
        stages = self.task.stages
        place = sum(stage.normalized is not None for stage in stages[:number])
        return resting(stages[number], self.state.statistics[place])

    def _back_lstm(self, number: int, lstm: Recurring, above: Integers, bits: int) -> Gradients:
        """Compute the backward pass of an LSTM or GRU through time.

        `above`: the gradients of all states if the layer gives all states, else the gradient of the
        last state.
        """
        task, stage = self.task, self.task.stages[number]
        assert stage.lstm
        embedded = number > 0 or stage.lstm.vocabulary > 0
        if not stage.lstm.sequences:
            return lstm.backward(above.astype(np.int8), bits, task.count, embedded=embedded)
        return lstm.backward_of_all(
            *(above.astype(np.int16), bits, task.count),
            embedded=embedded,
            scale=gradient_scale(stage),
            mask=self.passed.masks[number],
        )

    def _update_lstm(self, number: int, update: Update, lstm: Recurring, found: Gradients) -> None:
        task, stage = self.task, self.task.stages[number]
        vocabulary = stage.lstm.vocabulary if stage.lstm else 0
        masters, bits = task.master_bits, found.bits
        kernel, own = slice(stage.inputs), masters[number]
        given = lstm.weights.input_bits
        update.add(number, found.kernel, own, given + bits, rows=kernel)
        biases = slice(stage.inputs, None)
        sums = found.biases * np.int32(stage.use_bias)
        update.add(number, sums, own - stage.tensor.bias_less, bits, rows=biases)
        tensor = recurrent_tensor(task.stages, number)
        units, own = len(found.recurrent), masters[tensor]
        update.add(tensor, found.recurrent, own, lstm.state_bits + bits, rows=slice(units))
        if stage.lstm and stage.lstm.gru:
            sums = found.recurrent_biases * np.int32(stage.use_bias)
            own -= stage.tensor.bias_less
            update.add(tensor, sums, own, bits, rows=slice(units, None))
        if vocabulary:
            tensor = len(task.stages) + EMBEDDING
            sums = np.zeros((vocabulary, stage.inputs), np.int32)
            np.add.at(sums, self.x.T, found.below)
            update.add(tensor, sums, masters[tensor], bits)
