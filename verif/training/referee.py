# SPDX-License-Identifier: Apache-2.0
"""The same training in float32 with numpy: same weights, order and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.golden.training import random_lines
from systola.training.masks import keep_table
from systola.training.optimizers import SGD
from systola.training.programs import COUNTER_STEP
from systola.training.stages import Stage

Floats = NDArray[np.float32]


@dataclass
class Referee:
    """A network of `stages` and its float32 weights, kernels and biases in turn."""

    stages: Sequence[Stage]
    weights: list[Floats]
    optimizer: SGD
    loss: str = "sparse_categorical_crossentropy"
    seed: int = 0
    size: int = 16
    """Columns of the array, which the masks depend on."""

    def __post_init__(self) -> None:
        self.weights = [np.asarray(each, np.float32) for each in self.weights]
        self.velocities = [np.zeros_like(each) for each in self.weights]
        self.steps = self.epochs = 0

    def epoch(
        self, x: Floats, y: Floats, batch: int, *, shuffle: bool = True
    ) -> tuple[float, float]:
        """Loss and accuracy of an epoch; `y` has a row of targets for each sample."""
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

    def step(self, x: Floats, y: Floats, batch: int) -> tuple[float, int]:
        """The sum of the losses, and how many are right, before the update."""
        inputs, masks = [x], []
        for number, stage in enumerate(self.stages[:-1]):
            sums = inputs[-1] @ self.weights[2 * number] + self.weights[2 * number + 1]
            mask = np.ones_like(sums)
            if stage.relu:
                mask *= sums > 0
            if stage.rate:
                kept = self._kept(number, stage, batch)[: len(x)]
                mask *= kept / np.float32(1 - stage.rate)
            masks.append(mask)
            inputs.append(sums * mask)
        logits = inputs[-1] @ self.weights[-2] + self.weights[-1]
        gradient, losses = self._loss(logits, y)
        gradient /= np.float32(len(x))
        updates: list[Floats] = []
        for number in reversed(range(len(self.stages))):
            kernel = self.weights[2 * number]
            updates[:0] = [inputs[number].T @ gradient, gradient.sum(axis=0)]
            if number:
                gradient = (gradient @ kernel.T) * masks[number - 1]
        for place, update in enumerate(updates):
            velocity = self.velocities[place]
            velocity *= np.float32(self.optimizer.momentum)
            velocity -= np.float32(self.optimizer.learning_rate) * update
            self.weights[place] += velocity
        self.steps += 1
        return float(losses.sum()), int((logits.argmax(axis=1) == y.argmax(axis=1)).sum())

    def evaluate(self, x: Floats, y: Floats) -> tuple[float, float]:
        """Loss and accuracy without dropout."""
        for number, stage in enumerate(self.stages):
            x = x @ self.weights[2 * number] + self.weights[2 * number + 1]
            x = np.maximum(x, 0) if stage.relu else x
        _, losses = self._loss(x, y)
        return float(losses.mean()), float((x.argmax(axis=1) == y.argmax(axis=1)).mean())

    def _loss(self, outputs: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Gradient and loss of each sample."""
        if self.loss == "mse":
            error = outputs - y
            return error * np.float32(2 / y.shape[1]), (error**2).mean(axis=1)
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return np.exp(logs) - y, -(y * logs).sum(axis=1)

    def _kept(self, number: int, stage: Stage, batch: int) -> Floats:
        """1 for the units of each sample that dropout leaves, as the machine draws them."""
        blocks = -(-stage.units // self.size)
        rows = -(-batch // self.size) * self.size
        counter = number + self.steps * COUNTER_STEP
        drawn = np.stack(
            [
                random_lines(rows, self.size, self.seed, (counter + (block << 4)) % 2**32)
                for block in range(blocks)
            ]
        )
        kept = keep_table(stage.rate)[drawn.view(np.uint8)]
        return kept.transpose(1, 0, 2).reshape(rows, -1)[:, : stage.units].astype(np.float32)
