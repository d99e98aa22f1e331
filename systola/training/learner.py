# SPDX-License-Identifier: Apache-2.0
"""The base of models: layers with their trained state, and the engine that trains them further."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from systola.runtime.pod.linked import Linked, make_linked
from systola.runtime.pod.strategy import current_strategy
from systola.training import data
from systola.training.building import stages
from systola.training.checks import check_name, items, shown
from systola.training.data import Data
from systola.training.engine import Batch, Codes, Engine
from systola.training.errors import TrainingError
from systola.training.fast.checked import CheckedEngine
from systola.training.fast.engine import FastEngine
from systola.training.layers import Input, Layer
from systola.training.metrics import Totals
from systola.training.normalization import check_rows
from systola.training.numbers import codes, input_bits
from systola.training.optimizers import Optimizer
from systola.training.schedules import rate_at
from systola.training.settings import FAST
from systola.training.stages import Stage
from systola.training.state import State, glorot
from systola.training.task import Task

Numbers = NDArray[np.float64]


class Learner:
    """A network that checks its samples, and makes an engine when it needs one.

    Raises TrainingError if `layers` are no layers, and for a wrong `name`.
    """

    def __init__(self, layers: Sequence[Layer] | None, name: str) -> None:
        check_name("the name of a model", name)
        self.name = name
        self.layers: list[Layer] = []
        for each in items("layers", () if layers is None else layers, "layers"):
            self._add(each)
        self.stop_training = False
        self.log_names: Sequence[str] = ()
        """Names that the logs of an epoch have. They are set when fit() begins, and are empty
        before."""
        self.epochs = 0
        """Number of epochs that the network has been trained for."""
        self.steps = 0
        """Number of steps that the network has been trained for."""
        self.batch_size: int | None = None
        """The batch size of the last fit(), at most MOST_BATCH; None before it."""
        self.keras_model: Any = None
        """The Keras model from which from_keras() took the layers; None for other models."""
        self._strategy = current_strategy()
        self._state: State | None = None
        self._input_bits: int | None = None
        self._largest_weight = 0.0
        self._batches_since_epoch = 0
        """Number of batches of train_on_batch() since the last end_epoch() of the engine."""
        self._engine: Engine | FastEngine | None = None
        self._machine: Linked | None = None
        self.settings: dict[str, Any] | None = None
        """The checked arguments of compile(); None before it."""
        self._memories: dict[str, Any] = {}
        self._check_every = 0

    def _add(self, given: object) -> None:
        layer = _layer(given)
        if not isinstance(layer, Input) and layer.sample_shape is not None:
            if not self.layers:
                self.layers.append(Input(layer.sample_shape))
            if [getattr(each, "shape", None) for each in self.layers] != [layer.sample_shape]:
                raise TrainingError("input_shape belongs to the first layer")
        if layer.name and layer.name in [each.name for each in self.layers]:
            raise TrainingError(f"two layers have the name {shown(layer.name)}")
        self.layers.append(layer)

    def stages(self, features: int | None = None) -> tuple[Stage, ...]:
        """Return the stages of the layers. `features`: numbers of a sample, if there is no
        Input.
        """
        return stages(self.layers, features)

    def state(self) -> State:
        """Return all learnt numbers; draw fresh weights if there are none.

        Raises TrainingError if fresh weights cannot be drawn.
        """
        self._keep_state()
        if self._state is None:
            self._state = glorot(self.stages(), self._seed())
        return self._state

    @property
    def input_bits(self) -> int | None:
        """Number of fraction bits with which all samples of fit() fit int8; None before fit()."""
        return self._input_bits

    def restore(self, state: State, bits: int | None, *, epochs: int, steps: int) -> None:
        """Take the state, epochs and steps of another network, to continue from there."""
        self._state, self._input_bits, self._engine = state, bits, None
        self.epochs, self.steps = epochs, steps

    def cycles(self) -> int | None:
        """Return the number of cycles of the last batch; None on a machine without a clock."""
        return self._engine.cycles if self._engine else None

    def _step(self, engine: Engine | FastEngine, given: Data) -> Batch:
        """Train one step with a batch, at the optimiser's learning rate for this step."""
        engine.learn_at(rate_at(self._compiled()["optimizer"].learning_rate, self.steps))
        x = self._input(given.rows, engine)
        batch = engine.train(x, given.labels, self.steps, given.weights)
        self.steps += 1
        return batch

    def _measured(
        self, engine: Engine | FastEngine, given: Data, *, silent: bool
    ) -> dict[str, float]:
        total = self._totals()
        parts = in_parts(np.arange(len(given.rows)), engine.batch)
        for chosen in tqdm(parts, "Evaluate", unit="step", disable=silent):
            part = given.chosen(chosen)
            batch = engine.evaluate(self._input(part.rows, engine), part.labels, part.weights)
            total.add(batch.loss, batch.outputs, part.labels)
        return total.logs()

    def _input(self, rows: Numbers, engine: Engine | FastEngine) -> Codes:
        if self._vocabulary():
            return rows.astype(np.int32)
        return codes(rows, engine.task.input_bits, np.int8)

    def _fitting_bits(self, rows: Numbers) -> int:
        """Return the largest number of fraction bits with which samples fit int8 codes.

        The samples are these rows and all samples of fit(). Raises TrainingError for numbers that
        no code can hold.
        """
        if self._vocabulary():
            return 0
        bits = input_bits(rows)
        if bits < 0:
            raise TrainingError("x has numbers beyond 127: scale them")
        return bits if self._input_bits is None else min(bits, self._input_bits)

    def _vocabulary(self) -> int:
        """Return the size of the vocabulary if samples are words, else 0."""
        lstm = self.stages()[0].lstm
        return lstm.vocabulary if lstm else 0

    def _rows(self, x: Any, name: str) -> Numbers:
        rows = data.rescaled(data.samples(x, self._features(x), name), self.layers, name)
        if vocabulary := self._vocabulary():
            data.words(rows, vocabulary, name)
        return rows

    def _checked(
        self,
        x: Any,
        y: Any,
        sample_weight: Any = None,
        class_weight: Any = None,
        prefix: str = "",
    ) -> Data:
        rows = self._rows(x, prefix + "x")
        stage, loss = self.stages(rows.shape[1])[-1], self._compiled()["loss"]
        labels = data.targets(y, len(rows), stage, loss, prefix + "y")
        if class_weight is not None and loss == "mse":
            raise TrainingError("class_weight goes with classes, not with mse")
        name = f"{prefix}sample_weight"
        weights = data.sample_weights(sample_weight, class_weight, labels, name)
        return Data(rows, labels, weights)

    def _note(self, given: Data) -> int:
        """Store the largest weight of the samples to train with, and their fraction bits; return
        the fraction bits.
        """
        self._largest_weight = 0.0 if given.weights is None else float(given.weights.max())
        self._input_bits = self._fitting_bits(given.rows)
        return self._input_bits

    def _features(self, x: Any) -> int | None:
        """Return how many values a sample has.

        A network without an Input gets an Input from the shape of `x`.
        """
        self._compiled()
        if not (self.layers and isinstance(self.layers[0], Input)):
            data.samples(x, None)
            layers = [Input(np.shape(x)[1:]), *self.layers]
            stages(layers, None)
            self.layers = layers
        given = self.layers[0]
        assert isinstance(given, Input)
        return prod(given.shape)

    def _ready(self, rows: Numbers, batch_size: int) -> Engine | FastEngine:
        """Return an engine for these samples.

        The batch size stays as in the present engine. Without an engine it is `batch_size`, but at
        most the number of samples. Samples beyond the range of the samples of fit() are taken with
        fewer fraction bits, so that nothing is cut off. The next call chooses the bits anew, and
        the trained state does not depend on them.
        """
        batch = self._engine.batch if self._engine else min(batch_size, len(rows))
        self._end_batches()
        return self._prepare(batch, self._fitting_bits(rows))

    def _training_engine(self, batch_size: int) -> Engine | FastEngine:
        assert self._input_bits is not None
        return self._prepare(batch_size, self._input_bits)

    def _prepare(self, batch_size: int, bits: int) -> Engine | FastEngine:
        """Return the present engine, or a new engine if it has another batch size or other input
        bits.
        """
        engine, largest = self._engine, self._largest_weight
        if engine and (batch_size, bits, largest) == (
            *(engine.batch, engine.task.input_bits, engine.task.largest_weight),
        ):
            return engine
        settings, state = self._compiled(), self.state()
        check_rows(self.stages(), batch_size)
        chosen: Optimizer = settings["optimizer"]
        task = Task(
            stages=self.stages(),
            input_bits=bits,
            master_bits=state.bits,
            loss=settings["loss"],
            count=batch_size,
            learning_rate=rate_at(chosen.learning_rate, self.steps),
            momentum=chosen.momentum,
            weight_decay=chosen.weight_decay or 0.0,
            decays=chosen.decays,
            clip=chosen.clip,
            clip_value=chosen.clipvalue,
            largest_weight=largest,
            stochastic=chosen.stochastic,
            seed=settings["seed"],
        )
        if settings["backend"] != FAST:
            self._engine = Engine(self._linked(settings["backend"]), task, batch_size)
        elif self._check_every:
            self._engine = CheckedEngine(self._linked("rtl"), task, batch_size, self._check_every)
        else:
            self._engine = FastEngine(settings["preset"], task, batch_size)
        self._engine.load(state)
        return self._engine

    def _linked(self, backend: str) -> Linked:
        """Return the machine, which is built at the first call."""
        if self._machine is None:
            settings = self._compiled()
            self._machine = make_linked(
                *(backend, settings["preset"], settings["cores"]),
                latency=settings["latency"],
                **self._memories,
            )
        return self._machine

    def _end_batches(self) -> None:
        """End an epoch after batches of train_on_batch(), which have no epochs.

        This is for a model that is evaluated or saved now. The fraction bits of its units then fit
        all of these batches.
        """
        if self._engine is not None and self._batches_since_epoch:
            self._engine.end_epoch()
        self._batches_since_epoch = 0

    def _keep_state(self) -> None:
        self._end_batches()
        if self._engine is not None:
            self._state = self._engine.state()

    def _compiled(self) -> dict[str, Any]:
        if self.settings is None:
            raise TrainingError("call compile() first")
        return self.settings

    def _seed(self) -> int:
        return self.settings["seed"] if self.settings else 0

    def _totals(self) -> Totals:
        settings = self._compiled()
        return Totals(settings["metrics"], settings["loss"], self.stages()[-1])


def _layer(layer: object) -> Any:
    """Return a value that is a layer; raise TrainingError for anything else."""
    if not isinstance(layer, get_args(Layer)):
        raise TrainingError(f"{shown(layer)} is no layer that can be trained")
    return layer


def in_parts(rows: NDArray[Any], size: int) -> list[NDArray[Any]]:
    """Cut rows into parts of `size` rows each; the last part may have fewer."""
    return [rows[first : first + size] for first in range(0, len(rows), size)]
