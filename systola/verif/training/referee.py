# SPDX-License-Identifier: Apache-2.0
"""Training in float32 with numpy, to compare the machine with.

The training takes the machine's initial weights, order of samples and dropout masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.golden.training import Generators
from systola.training.masks import block_seed, keep_table
from systola.training.optimizers import SGD, Optimizer
from systola.training.programs import COUNTER_STEP
from systola.training.schedules import rate_at
from systola.training.stages import Stage, takes
from systola.training.windows import Window
from systola.verif.training.gru import recurrent
from systola.verif.training.normal import Normal

Floats = NDArray[np.float32]
EVALUATED = 1000
"""Largest number of samples that are evaluated together: an LSTM keeps all their steps."""


def windows(x: Floats, window: Window) -> Floats:
    """Return the taps of all windows of maps; taps outside of a map are zero.

    The shape is (samples, height, width, taps, channels).
    """
    found = np.zeros((len(x), *window.out, window.taps, x.shape[-1]), np.float32)
    for number, pixels, inside in _taps(window):
        found[:, inside[0], inside[1], number] = x[:, pixels[0], pixels[1]]
    return found


def from_windows(gradient: Floats, window: Window) -> Floats:
    """Return the gradient of maps, summed up from the gradients of their windows' taps."""
    found = np.zeros((len(gradient), *window.map, gradient.shape[-1]), np.float32)
    for number, pixels, inside in _taps(window):
        found[:, pixels[0], pixels[1]] += gradient[:, inside[0], inside[1], number]
    return found


def _taps(window: Window) -> list[tuple[int, Any, Any]]:
    """Return, for each tap of a window, which pixels of a map it takes and in which windows."""
    found: list[tuple[int, Any, Any]] = []
    for number, place in enumerate(window.places):
        pixels, inside = [], []
        for axis in range(2):
            at = np.arange(window.out[axis])
            pixel = at * window.stride[axis] - window.before[axis] + place[axis]
            there = (pixel >= 0) & (pixel < window.map[axis])
            inside.append(at[there])
            pixels.append(pixel[there])
        found.append((number, np.ix_(*pixels), np.ix_(*inside)))
    return [
        (
            number,
            (p[0], p[1]),
            (slice(i[0].min(), i[0].max() + 1), slice(i[1].min(), i[1].max() + 1)),
        )
        for number, p, i in found
        if i[0].size and i[1].size
    ]


def joined(stage: Stage, given: Sequence[Floats]) -> Floats:
    """Return the sum of several results, or the concatenated results, by the stage's `join`."""
    shape = (len(given[0]), *stage.map, -1) if stage.maps else (len(given[0]), -1)
    given = [each.reshape(shape) for each in given]
    return np.concatenate(given, axis=-1) if stage.join == "concatenate" else np.sum(given, axis=0)


def _add(above: dict[int, Floats], at: int, gradient: Floats) -> None:
    above[at] = above[at] + gradient if at in above else gradient


@dataclass
class Referee:
    """A network that trains in float32, to compare the machine with.

    `weights` are in Keras's order; a kernel has the shape (inputs, units).
    """

    stages: Sequence[Stage]
    weights: list[Floats]
    optimizer: Optimizer
    loss: str = "sparse_categorical_crossentropy"
    seed: int = 0
    size: int = 16
    """Number of columns of the machine's array, on which the dropout masks depend."""

    def __post_init__(self) -> None:
        self.weights = [np.asarray(each, np.float32) for each in self.weights]
        self.velocities = [np.zeros_like(each) for each in self.weights]
        """Velocities of SGD, or first moments of Adam; `squares` has the second moments."""
        self.squares = [np.zeros_like(each) for each in self.weights]
        self.steps = self.epochs = 0
        self._lstms = [recurrent(stage.lstm) if stage.lstm else None for stage in self.stages]
        counts = [
            lstm.arrays if lstm else (1 + stage.use_bias) * (not stage.join)
            for lstm, stage in zip(self._lstms, self.stages, strict=True)
        ]
        self._normal = [Normal(stage.normalized) for stage in self.stages if stage.normalized]
        if self._normal:
            self._take_statistics()
        self._kernel = [sum(counts[:number]) for number in range(len(self.stages))]
        """Index in `weights` of the first array of each stage."""

    def epoch(
        self, x: Floats, y: Floats, batch: int, *, shuffle: bool = True
    ) -> tuple[float, float]:
        """Train an epoch; return loss and accuracy. `y` has a row of targets for each sample."""
        order = np.arange(len(x))
        if shuffle:
            order = np.random.default_rng((self.seed, self.epochs)).permutation(order)
        loss, right = 0.0, 0
        for first in range(0, len(x), batch):
            chosen = order[first : first + batch]
            part, hits = self.step(x[chosen], y[chosen], batch)
            loss, right = loss + part, right + hits
        self.epochs += 1
        return loss / len(x), right / len(x)

    def step(self, x: Floats, y: Floats, batch: int) -> tuple[float, float]:
        """Take a step; return the sum of the samples' losses, and the number of right samples.

        Losses and right samples are counted with the weights before the step's update.
        """
        inputs: list[Floats] = []
        masks: list[Floats] = []
        slopes: list[Floats] = []
        winners: list[Floats | None] = []
        results, last = [x], len(self.stages) - 1
        for number, stage in enumerate(self.stages[:-1]):
            x = results[takes(self.stages, number)[0]]
            if stage.normalized:
                inputs.append(x)
                sums = self._normal_of(number).forward(x)
            elif stage.join:
                inputs.append(x)
                sums = joined(stage, [results[at] for at in stage.sources])
            elif lstm := self._lstms[number]:
                inputs.append(x)
                sums = lstm.forward(x, self.weights[self._kernel[number] :])
            else:
                inputs.append(self._inputs(number, x))
                sums = self._sums(number, inputs[-1])
            x, slope = self._activated(stage, sums)
            x, winner = self._pooled(stage, x)
            mask = np.ones_like(x)
            if stage.rate:
                mask = self._kept(number, stage, batch)[: len(x)] / np.float32(1 - stage.rate)
                mask = mask.reshape(x.shape)
            x = x * mask
            slopes.append(slope)
            winners.append(winner)
            masks.append(mask)
            results.append(x)
        inputs.append(self._inputs(last, results[takes(self.stages, last)[0]]))
        logits = self._sums(last, inputs[-1])
        gradient, losses = self._loss(logits, y)
        gradient /= np.float32(len(x))
        updates: list[Floats] = []
        above = {last + 1: gradient}
        for number in reversed(range(len(self.stages))):
            if self.stages[number].sources or number + 1 in above:
                gradient = above[number + 1]
            if number < last and not self._lstms[number + 1]:
                gradient = self._through(number, gradient, masks, winners, slopes)
            if self.stages[number].normalized:
                gradient = self._normal_of(number).backward(gradient)
            if self.stages[number].join:
                self._split(number, gradient, above, results)
                continue
            if lstm := self._lstms[number]:
                updates[:0], below = lstm.backward(gradient)
                above[number] = below * masks[number - 1] if number else below
                continue
            kernel, window = self.weights[self._kernel[number]], self.stages[number].window
            flat = gradient.reshape(-1, gradient.shape[-1])
            rows, depthwise = inputs[number].reshape(len(flat), -1), self.stages[number].depthwise
            moved = rows.T @ flat
            if depthwise:
                taps = rows.reshape(len(flat), *kernel.shape)
                moved = np.einsum("ntc,nc->tc", taps, flat)
            updates[:0] = [moved, flat.sum(axis=0)][: 1 + self.stages[number].use_bias]
            if at := takes(self.stages, number)[0]:
                below = gradient @ kernel.T if not depthwise else gradient[..., np.newaxis, :]
                if depthwise:
                    below = below * kernel
                    below = below.reshape(*below.shape[:-2], -1)
                if window:
                    taps = below.reshape(*below.shape[:-1], window.taps, -1)
                    below = from_windows(taps, window)
                _add(above, at, below.reshape(masks[at - 1].shape))
        self.steps += 1
        for place, update in enumerate(updates):
            self.weights[place] += self._moved(place, update)
        return float(losses.sum()), self._right(logits, y)

    def _take_statistics(self) -> None:
        """Take the moving means and variances out of the list of weights, into the layers' own
        fields.

        In the list they come after the gamma and beta of their layer.
        """
        kept: list[Floats] = []
        for number, stage in enumerate(self.stages):
            count = 1 + stage.use_bias if not (stage.join or stage.lstm) else 0
            kept += self.weights[:count]
            del self.weights[:count]
            if stage.scales:
                normal = self._normal_of(number - 1)
                normal.mean, normal.variance = self.weights[:2]
                del self.weights[:2]
        self.weights = kept
        self.velocities = [np.zeros_like(each) for each in self.weights]
        self.squares = [np.zeros_like(each) for each in self.weights]

    def _normal_of(self, number: int) -> Normal:
        """Return the BatchNormalization of the stage `number`, counted from 0."""
        before = sum(stage.normalized is not None for stage in self.stages[:number])
        return self._normal[before]

    def _through(
        self,
        number: int,
        gradient: Floats,
        masks: list[Floats],
        winners: list[Floats | None],
        slopes: list[Floats],
    ) -> Floats:
        """Return the gradient of a stage's sums from the gradient of its units.

        The units are the results after activation, pooling and dropout.
        """
        gradient = gradient * masks[number]
        winner, pool = winners[number], self.stages[number].pool
        if winner is not None and pool:
            gradient = from_windows(winner * gradient[..., np.newaxis, :], pool)
        return gradient * slopes[number]

    def _split(
        self, number: int, gradient: Floats, above: dict[int, Floats], results: list[Floats]
    ) -> None:
        """Pass the gradient of a join on to the results that the stage joins."""
        stage, first = self.stages[number], 0
        for at in stage.sources:
            part, shape = gradient, results[at].shape
            if stage.join == "concatenate":
                width = shape[-1] if stage.maps else int(np.prod(shape[1:]))
                part = gradient[..., first : first + width]
                first += width
            _add(above, at, part.reshape(shape))

    def _moved(self, place: int, gradient: Floats) -> Floats:
        """Return the change that the optimiser makes to an array of weights in a step."""
        optimizer, velocity, square = self.optimizer, self.velocities[place], self.squares[place]
        rate = np.float32(rate_at(optimizer.learning_rate, self.steps - 1))
        if isinstance(optimizer, SGD):
            velocity *= np.float32(optimizer.momentum)
            velocity -= rate * gradient
            return velocity
        decays = optimizer.decays
        for moment, decay, addend in (
            (velocity, decays.first, gradient),
            (square, decays.second, gradient**2),
        ):
            moment *= np.float32(decay)
            moment += np.float32(1 - decay) * addend
        if decays.corrected:
            t = self.steps
            rate *= np.float32(np.sqrt(1 - decays.second**t) / (1 - decays.first**t))
        return -rate * velocity / (np.sqrt(square) + np.float32(1e-7))

    def evaluate(self, x: Floats, y: Floats) -> tuple[float, float]:
        """Return loss and accuracy for samples, without dropout."""
        found = [
            self._evaluate(x[first : first + EVALUATED], y[first : first + EVALUATED])
            for first in range(0, len(x), EVALUATED)
        ]
        loss, right = np.sum(found, axis=0)
        return float(loss) / len(x), float(right) / len(x)

    def _evaluate(self, x: Floats, y: Floats) -> tuple[float, float]:
        """Return the sum of the samples' losses, and the number of right samples, as predicted.

        No dropout is applied.
        """
        results = [x]
        for number, stage in enumerate(self.stages):
            x = results[takes(self.stages, number)[0]]
            if lstm := self._lstms[number]:
                results.append(lstm.forward(x, self.weights[self._kernel[number] :]))
                continue
            if stage.normalized:
                x = self._normal_of(number).at_rest(x)
            elif stage.join:
                x = joined(stage, [results[at] for at in stage.sources])
            else:
                x = self._sums(number, self._inputs(number, x))
            x, _ = self._pooled(stage, self._activated(stage, x)[0])
            results.append(x)
        _, losses = self._loss(x, y)
        return float(losses.sum()), self._right(x, y)

    def _sums(self, number: int, inputs: Floats) -> Floats:
        kernel = self._kernel[number]
        bias = self.weights[kernel + 1] if self.stages[number].use_bias else 0
        if self.stages[number].depthwise:
            taps = inputs.reshape(*inputs.shape[:-1], *self.weights[kernel].shape)
            return (taps * self.weights[kernel]).sum(axis=-2) + bias
        return inputs @ self.weights[kernel] + bias

    def _activated(self, stage: Stage, sums: Floats) -> tuple[Floats, Floats]:
        """Return the activation of the sums, and its slopes at the sums."""
        slopes = np.ones_like(sums)
        match stage.curve:
            case "tanh":
                return np.tanh(sums), 1 - np.tanh(sums) ** 2
            case "sigmoid":
                units = 1 / (1 + np.exp(-sums))
                return units, units * (1 - units)
            case "hard_sigmoid":
                units = np.clip(sums / 6 + np.float32(0.5), 0, 1)
                return units, slopes / 6 * (abs(sums) < 3)
            case "relu6":
                return np.clip(sums, 0, 6), slopes * (sums > 0) * (sums < 6)
            case _:
                slopes = (sums > 0).astype(np.float32) if stage.relu else slopes
                return sums * slopes, slopes

    def _right(self, outputs: Floats, y: Floats) -> float:
        if self.loss == "binary_crossentropy":
            return float(((outputs > 0) == (y > 0.5)).mean(axis=1).sum())
        return float((outputs.argmax(axis=1) == y.argmax(axis=1)).sum())

    def _inputs(self, number: int, x: Floats) -> Floats:
        """Return the inputs for the sums of a stage, as a row for each sample or each window."""
        stage = self.stages[number]
        if stage.window is None:
            return x.reshape(len(x), -1)
        maps = x.reshape(len(x), *stage.window.map, -1)
        return windows(maps, stage.window).reshape(len(x), *stage.window.out, -1)

    def _pooled(self, stage: Stage, x: Floats) -> tuple[Floats, Floats | None]:
        """Return the units of a stage after its pooling, and the share of each tap in its unit.

        A maximum takes one tap only, and an average takes equal shares of all taps. Without a
        pooling the units stay as they are, and there are no shares.
        """
        if stage.pool is None:
            return x, None
        taps = windows(x, stage.pool)
        if stage.average:
            return taps.mean(axis=3), np.full_like(taps, 1 / stage.pool.taps)
        winner = np.arange(stage.pool.taps)[:, np.newaxis] == taps.argmax(axis=3, keepdims=True)
        return taps.max(axis=3), winner.astype(np.float32)

    def _loss(self, outputs: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return the gradient and the loss of each sample, by the network's loss function."""
        if self.loss == "mse":
            error = outputs - y
            return error * np.float32(2 / y.shape[1]), (error**2).mean(axis=1)
        if self.loss == "binary_crossentropy":
            losses = np.logaddexp(np.float32(0), outputs) - outputs * y
            gradient = 1 / (1 + np.exp(-outputs)) - y
            return gradient / np.float32(y.shape[1]), losses.mean(axis=1)
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return np.exp(logs) - y, -(y * logs).sum(axis=1)

    def _kept(self, number: int, stage: Stage, batch: int) -> Floats:
        """Return the dropout mask that the machine draws for a stage, 1 for each unit it keeps."""
        if stage.lstm and stage.lstm.sequences:
            steps = range(stage.lstm.steps)
            return np.stack([self._drawn(number, stage, batch, step) for step in steps], axis=1)
        return self._drawn(number, stage, batch)

    def _drawn(self, number: int, stage: Stage, batch: int, step: int = 0) -> Floats:
        """Return the dropout mask that the machine draws for a stage at a step in time.

        The mask is 1 for each unit that is kept.
        """
        units = stage.lstm.units if stage.lstm else stage.units
        blocks = -(-units // self.size)
        samples = -(-batch // self.size) * self.size
        rows = samples * stage.map[0] * stage.map[1]
        each = rows * self.size // samples
        counter = number + self.steps * COUNTER_STEP
        drawn = np.array(
            [
                [
                    Generators(self.size).lines(each, seed, (counter + (block << 4)) % 2**32)
                    for seed in (block_seed(self.seed, n, step) for n in range(rows // each))
                ]
                for block in range(blocks)
            ]
        ).reshape(blocks, rows, self.size)
        kept = keep_table(stage.rate)[drawn.view(np.uint8)]
        kept = kept.transpose(1, 0, 2).reshape(rows, -1)[:, :units].astype(np.float32)
        return kept.reshape(samples, *stage.map, -1) if stage.window else kept
