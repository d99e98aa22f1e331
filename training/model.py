# SPDX-License-Identifier: Apache-2.0
"""Sequential: a network as Keras writes one, trained on the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from os import PathLike
from typing import Any, Never, get_args

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config, ConfigError
from systola.arch.config import preset as named_preset
from systola.runtime.pod.linked import Linked, make_linked
from systola.runtime.pod.strategy import Strategy, current_strategy
from systola.training import data
from systola.training.callbacks import Callback, History, check_callbacks
from systola.training.checks import flag, items, nothing_more, real, shown, whole
from systola.training.engine import Codes, Engine
from systola.training.errors import TrainingError
from systola.training.fast.checked import CheckedEngine
from systola.training.fast.engine import FastEngine
from systola.training.layers import Input, Layer
from systola.training.loss import BINARY
from systola.training.numbers import Floats, codes, input_bits
from systola.training.optimizers import SGD
from systola.training.optimizers import optimizer as named_optimizer
from systola.training.progress import Progress
from systola.training.settings import FAST, Settings
from systola.training.stages import Stage, stages
from systola.training.state import State, as_keras, from_weights, glorot, weights
from systola.training.task import Task

DEFAULT_PRESET = "base-training"
Numbers = NDArray[np.float64]
Validation = tuple[Any, Any]


class Sequential:
    """Layers one after the other. compile() chooses how to learn and on which machine.

    Losses are of logits: a last layer of softmax changes what predict() gives, not the training.
    """

    def __init__(self, layers: Sequence[Layer] = ()) -> None:
        self.layers: list[Layer] = [_layer(each) for each in items("layers", layers, "layers")]
        self.stop_training = False
        self.log_names: Sequence[str] = ()
        """Names in the logs of an epoch, from the begin of fit() on."""
        self.epochs = 0
        """Epochs trained so far, and `steps` likewise."""
        self.steps = 0
        self._state: State | None = None
        self._input_bits: int | None = None
        self._engine: Engine | FastEngine | None = None
        self._machine: Linked | None = None
        self.settings: dict[str, Any] | None = None
        """What compile() was given."""
        self._memories: dict[str, Any] = {}
        self._check_every = 0

    def add(self, layer: Layer) -> None:
        """Add a layer at the end. Raises TrainingError for what is none, and where there are
        weights."""
        if self._state is not None:
            raise TrainingError("a network that has weights takes no more layers")
        self.layers.append(_layer(layer))

    def compile(
        self,
        optimizer: str | SGD = "sgd",
        loss: str = "sparse_categorical_crossentropy",
        metrics: Sequence[str] = (),
        *,
        seed: int = 0,
        preset: str | Config | None = None,
        backend: str | None = None,
        latency: int | None = None,
        cores: int | None = None,
        check_every: int = 0,
        **others: Never,
    ) -> None:
        """Chooses optimiser, loss and machine.

        `seed` is that of fresh weights, of the order of samples and of the masks of Dropout. The
        machine has the preset `preset`, "rtl" or "iss" (the golden model) for `backend`, and
        memories of `latency` cycles. "fast" is no machine, but makes the same bytes in numpy; with
        `check_every` n each n-th step is taken on the RTL, too, and compared. With `cores` it is
        a pod: they share each batch, and learn the bytes that one core learns. What is not given
        is that of the Strategy in whose scope this is, whose preset gets what training takes; else
        DEFAULT_PRESET, "rtl", 0 and 1. Raises TrainingError for what is not there.
        """
        nothing_more("compile", others)
        pod = current_strategy()
        if pod and (pod.split or pod.scheduler):
            raise TrainingError("a Strategy with split or scheduler cannot train")
        pod = pod or Strategy(1, DEFAULT_PRESET)
        if preset is None:
            config = pod.config
            if not config.training:
                config = replace(config, name=f"{config.name}-training", training=True)
        else:
            config = _config(preset)
        settings = Settings(
            optimizer=named_optimizer(optimizer),
            loss=loss,
            metrics=metrics,  # type: ignore[arg-type]  # which makes a tuple of it
            seed=seed,
            preset=config.name,
            backend=pod.backend if backend is None else backend,
            latency=pod.latency if latency is None else latency,
            cores=pod.cores if cores is None else cores,
        )
        if not config.training:
            raise TrainingError(
                f"configuration '{config.name}' has no training: take '{config.name}-training'"
            )
        check_every = whole("check_every", check_every, 0)
        if check_every and settings.backend != FAST:
            raise TrainingError(f"check_every goes with backend='{FAST}'")
        self._keep_state()
        self._check_every = check_every
        self._engine = self._machine = None
        self.settings = {**vars(settings), "preset": config}
        self._memories = {"stall": pod.stall, "seed": pod.seed}

    def fit(
        self,
        x: Any,
        y: Any,
        *,
        batch_size: int = 32,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[Callback] = (),
        validation_split: float = 0.0,
        validation_data: Validation | None = None,
        shuffle: bool = True,
        initial_epoch: int = 0,
        **others: Never,
    ) -> History:
        """Trains, as Keras does: up to epoch `epochs`, the first one being `initial_epoch`.

        The last `validation_split` of the samples, or `validation_data`, are evaluated after each
        epoch. Raises TrainingError for bad data, and for arguments of the wrong type or range,
        before anything runs.
        """
        nothing_more("fit", others)
        batch_size = whole("batch_size", batch_size, 1)
        epochs = whole("epochs", epochs, 0)
        initial_epoch = whole("initial_epoch", initial_epoch, 0)
        shuffle = flag("shuffle", shuffle)
        if verbose != "auto":
            verbose = whole("verbose", int(verbose) if isinstance(verbose, bool) else verbose, 0, 2)
        callbacks = check_callbacks(callbacks)
        validation_split = real("validation_split", validation_split)
        if not 0 <= validation_split < 1:
            raise TrainingError(f"validation_split must be 0 to 1, not {validation_split}")
        rows, labels = self._checked(x, y)
        checked: tuple[Numbers, NDArray[np.int16]] | None = None
        if validation_data is not None:
            pair = items("validation_data", validation_data, "x and y")
            if len(pair) != 2:
                raise TrainingError(f"validation_data must be x and y, not {len(pair)} items")
            checked = self._checked(*pair, prefix="validation ")
        elif validation_split:
            count = int(len(rows) * (1 - validation_split))
            if not 0 < count < len(rows):
                raise TrainingError("validation_split leaves no samples")
            checked = rows[count:], labels[count:]
            rows, labels = rows[:count], labels[:count]

        self._input_bits = self._fitting_bits(rows)
        batch_size = min(batch_size, len(rows))
        self._prepare(batch_size, self._input_bits)  # it must fit, before callbacks begin
        history = History()
        progress = Progress(0 if verbose == 0 else 1, epochs, -(-len(rows) // batch_size))
        everyone: list[Callback] = [*callbacks, history, progress]
        self.stop_training = False
        measured = ("loss", *self._metrics())
        validated = () if checked is None else tuple(f"val_{name}" for name in measured)
        self.log_names = (*measured, *validated)
        for each in everyone:
            each.set_model(self)
            each.on_train_begin()
        for epoch in range(initial_epoch, epochs):
            for each in everyone:
                each.on_epoch_begin(epoch)
            logs = self._epoch(rows, labels, batch_size, shuffle, everyone)
            if checked is not None:
                engine = self._ready(checked[0], batch_size)
                logs |= {f"val_{k}": v for k, v in self._measured(engine, *checked).items()}
            for each in everyone:
                each.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        for each in everyone:
            each.on_train_end()
        return history

    def evaluate(
        self,
        x: Any,
        y: Any,
        *,
        batch_size: int = 32,
        return_dict: bool = False,
        **others: Never,
    ) -> float | list[float] | dict[str, float]:
        """Measure loss and metrics of samples, and gives them as Keras does. Raises TrainingError
        as fit() does."""
        nothing_more("evaluate", others)
        batch_size = whole("batch_size", batch_size, 1)
        return_dict = flag("return_dict", return_dict)
        rows, labels = self._checked(x, y)
        found = self._measured(self._ready(rows, batch_size), rows, labels)
        if return_dict:
            return found
        values = list(found.values())
        return values[0] if len(values) == 1 else values

    def predict(self, x: Any, *, batch_size: int = 32, **others: Never) -> NDArray[np.float32]:
        """Return the outputs of the network for any number of samples.

        Raises TrainingError as fit() does.
        """
        nothing_more("predict", others)
        batch_size = whole("batch_size", batch_size, 1)
        rows = self._rows(x, "x")
        engine = self._ready(rows, batch_size)
        found = [engine.predict(self._input(part, engine)) for part in _parts(rows, engine.batch)]
        return np.concatenate(found).astype(np.float32)

    def get_weights(self) -> list[Floats]:
        """Those of each layer in turn, as Keras has them: exactly the numbers of the masters."""
        found = self.stages()
        return as_keras(found, weights(found, self.state()))

    def set_weights(self, given: Sequence[Floats]) -> None:
        """Take weights, to the nearest numbers that masters can be. Raises TrainingError for
        others than get_weights() would give."""
        self._state, self._engine = from_weights(self.stages(), given), None

    def save(self, path: str | PathLike[str]) -> None:
        """Saves everything: a model that is loaded again goes on byte for byte."""
        from systola.training.checkpoint import save

        save(self, path)

    def stages(self, features: int | None = None) -> tuple[Stage, ...]:
        """The stages of the layers; `features`: the numbers of a sample, where no Input tells."""
        return stages(self.layers, features)

    def state(self) -> State:
        """What it has learnt. Raises TrainingError before there are weights."""
        self._keep_state()
        if self._state is None:
            self._state = glorot(self.stages(), self._seed())
        return self._state

    @property
    def input_bits(self) -> int | None:
        """Fraction bits with which all samples of fit() fit; None before it."""
        return self._input_bits

    def restore(self, state: State, bits: int | None, *, epochs: int, steps: int) -> None:
        """Takes up where another one has stopped."""
        self._state, self._input_bits, self._engine = state, bits, None
        self.epochs, self.steps = epochs, steps

    def cycles(self) -> int | None:
        """Of the last batch, on a machine with a clock."""
        return self._engine.cycles if self._engine else None

    # How it is done.

    def _epoch(
        self,
        rows: Numbers,
        labels: NDArray[np.int16],
        batch_size: int,
        shuffle: bool,
        everyone: Sequence[Callback],
    ) -> dict[str, float]:
        order = np.arange(len(rows))
        if shuffle:
            order = np.random.default_rng((self._seed(), self.epochs)).permutation(order)
        total = _Total(self._metrics(), binary=self._compiled()["loss"] == BINARY)
        for number, chosen in enumerate(_parts(order, batch_size)):
            # A callback may have called compile() or set_weights(): there is a new engine, then.
            engine = self._training_engine(batch_size)
            batch = engine.train(self._input(rows[chosen], engine), labels[chosen], self.steps)
            self.steps += 1
            total.add(batch.loss, batch.outputs, labels[chosen])
            for each in everyone:
                each.on_train_batch_end(number, total.logs())
        self._training_engine(batch_size).end_epoch()
        self.epochs += 1
        return total.logs()

    def _measured(
        self, engine: Engine | FastEngine, rows: Numbers, labels: NDArray[np.int16]
    ) -> dict[str, float]:
        total = _Total(self._metrics(), binary=self._compiled()["loss"] == BINARY)
        for chosen in _parts(np.arange(len(rows)), engine.batch):
            batch = engine.evaluate(self._input(rows[chosen], engine), labels[chosen])
            total.add(batch.loss, batch.outputs, labels[chosen])
        return total.logs()

    def _input(self, rows: Numbers, engine: Engine | FastEngine) -> Codes:
        if self._vocabulary():
            return rows.astype(np.int32)
        return codes(rows, engine.task.input_bits, np.int8)

    def _fitting_bits(self, rows: Numbers) -> int:
        """Return the most fraction bits with which all of these samples, and those of fit(), fit.

        Raises TrainingError for numbers that no code can hold.
        """
        if self._vocabulary():
            return 0
        bits = input_bits(rows)
        if bits < 0:
            raise TrainingError("x has numbers beyond 127: scale them")
        return bits if self._input_bits is None else min(bits, self._input_bits)

    def _vocabulary(self) -> int:
        """How many words there are, where samples are words."""
        lstm = self.stages()[0].lstm
        return lstm.vocabulary if lstm else 0

    def _rows(self, x: Any, name: str) -> Numbers:
        rows = data.samples(x, self._features(x), name)
        if vocabulary := self._vocabulary():
            data.words(rows, vocabulary, name)
        return rows

    def _checked(self, x: Any, y: Any, prefix: str = "") -> tuple[Numbers, NDArray[np.int16]]:
        rows = self._rows(x, prefix + "x")
        stage = self.stages(rows.shape[1])[-1]
        return rows, data.targets(y, len(rows), stage, self._compiled()["loss"], prefix + "y")

    def _features(self, x: Any) -> int | None:
        """Numbers of a sample, where the network has them already; makes them known else."""
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
        """Return an engine for these samples: of the batches of the present one, if there is one.

        Samples beyond the range of those of fit() are taken with fewer bits, which lasts until the
        next call: nothing is cut off, and what is learnt does not depend on it.
        """
        batch = self._engine.batch if self._engine else min(batch_size, len(rows))
        return self._prepare(batch, self._fitting_bits(rows))

    def _training_engine(self, batch_size: int) -> Engine | FastEngine:
        assert self._input_bits is not None
        return self._prepare(batch_size, self._input_bits)

    def _prepare(self, batch_size: int, bits: int) -> Engine | FastEngine:
        """Return the present engine, or a new one for this batch size and these input bits."""
        engine = self._engine
        if engine and (engine.batch, engine.task.input_bits) == (batch_size, bits):
            return engine
        settings, state = self._compiled(), self.state()
        chosen: SGD = settings["optimizer"]
        task = Task(
            stages=self.stages(),
            input_bits=bits,
            master_bits=state.bits,
            loss=settings["loss"],
            count=batch_size,
            learning_rate=chosen.learning_rate,
            momentum=chosen.momentum,
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
        """Return the machine, which is built once."""
        if self._machine is None:
            settings = self._compiled()
            self._machine = make_linked(
                *(backend, settings["preset"], settings["cores"]),
                latency=settings["latency"],
                **self._memories,
            )
        return self._machine

    def _keep_state(self) -> None:
        if self._engine is not None:
            self._state = self._engine.state()

    def _compiled(self) -> dict[str, Any]:
        if self.settings is None:
            raise TrainingError("call compile() first")
        return self.settings

    def _seed(self) -> int:
        return self.settings["seed"] if self.settings else 0

    def _metrics(self) -> list[str]:
        return self._compiled()["metrics"]


class _Total:
    """Sums up loss and metrics over batches."""

    def __init__(self, metrics: Sequence[str], *, binary: bool) -> None:
        self._metrics = metrics
        self._binary = binary
        self._count = 0
        self._right = self._loss = 0.0

    def add(self, loss: float, outputs: Numbers, labels: NDArray[np.int16]) -> None:
        """Takes a batch."""
        self._count += len(labels)
        self._loss += loss
        if self._binary:
            hits = ((outputs > 0) == (labels > 1 << 14)).mean(axis=1)
        else:
            hits = outputs.argmax(axis=1) == labels.argmax(axis=1)
        self._right += float(hits.sum())

    def logs(self) -> dict[str, float]:
        """Means over the samples so far."""
        found = {"loss": self._loss / self._count}
        return found | dict.fromkeys(self._metrics, self._right / self._count)


def _layer(layer: object) -> Any:
    """Return a layer; raise TrainingError for anything else."""
    if not isinstance(layer, get_args(Layer)):
        raise TrainingError(f"{shown(layer)} is no layer that can be trained")
    return layer


def _config(preset: object) -> Config:
    """Return a configuration, which may be called by its name; raise TrainingError for others."""
    if isinstance(preset, Config):
        return preset
    if not isinstance(preset, str):
        raise TrainingError(f"a preset is a name or a Config, not {shown(preset)}")
    try:
        return named_preset(preset)
    except ConfigError as error:
        raise TrainingError(str(error)) from None


def _parts(rows: NDArray[Any], size: int) -> list[NDArray[Any]]:
    return [rows[first : first + size] for first in range(0, len(rows), size)]
