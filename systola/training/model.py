# SPDX-License-Identifier: Apache-2.0
"""Sequential: a network as Keras writes one, trained on the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from systola.arch.config import Config, ConfigError
from systola.arch.config import preset as named_preset
from systola.runtime.pod.strategy import Strategy, current_strategy
from systola.training.arguments import Only, takes
from systola.training.callbacks import Callback, History, check_callbacks
from systola.training.checks import flag, is_name, items, real, shown, whole
from systola.training.data import Data
from systola.training.errors import TrainingError
from systola.training.layers import Layer
from systola.training.learner import Learner, in_parts
from systola.training.numbers import Floats
from systola.training.optimizers import Optimizer
from systola.training.optimizers import optimizer as named_optimizer
from systola.training.paths import check_path, check_target
from systola.training.progress import Progress
from systola.training.running_optimizer import RunningOptimizer
from systola.training.settings import FAST, MOST_BATCH, Settings
from systola.training.state import as_keras, from_weights, keras_shapes, weights
from systola.training.step_energy import StepEnergy, step_energy
from systola.training.summary import printable, table, weights_of_layers
from systola.training.weight_files import read_weights, write_weights

DEFAULT_PRESET = "base-training"
Validation = tuple[Any, Any] | tuple[Any, Any, Any]
_OF_COMPILE = {
    "loss_weights": Only((None,), "there is one loss"),
    "weighted_metrics": Only((None,), "metrics= is there"),
    "run_eagerly": Only((False,), "the machine runs programs"),
    "steps_per_execution": Only((1,), "each step is a program"),
    "jit_compile": Only(("auto", True), "each step is a program"),
    "auto_scale_loss": Only((True,), "tensors have exponents of their own"),
}
_STEPS = Only((None,), "give fewer samples")
_OF_FIT = {
    "steps_per_epoch": _STEPS,
    "validation_steps": _STEPS,
    "validation_batch_size": Only((None,), "results are the same for any"),
    "validation_freq": Only((1,), "a callback may call evaluate()"),
}
_OF_EVALUATE = {"steps": _STEPS, "callbacks": Only((None,))}


class Sequential(Learner):
    """A network of layers one after the other. compile() chooses how to learn and on which machine.

    Losses are computed from logits. So a last layer of softmax or sigmoid changes the results of
    predict(), but not the training.
    """

    log_names: Sequence[str]
    epochs: int
    batch_size: int | None
    settings: dict[str, Any] | None

    @takes(trainable=Only((True,), "all layers are trained"))
    def __init__(self, layers: Sequence[Layer] | None = None, name: str = "sequential") -> None:
        super().__init__(layers, name)

    @takes()
    def add(self, layer: Layer) -> None:
        """Add a layer at the end.

        Raises TrainingError for anything but a layer, and for a network that has weights.
        """
        if self._state is not None:
            raise TrainingError("a network that has weights takes no more layers")
        self._add(layer)

    @takes(**_OF_COMPILE)
    def compile(
        self,
        optimizer: str | Optimizer = "sgd",
        loss: str = "sparse_categorical_crossentropy",
        metrics: Sequence[str] | str | None = None,
        *,
        seed: int = 0,
        preset: str | Config | None = None,
        backend: str | None = None,
        latency: int | None = None,
        cores: int | None = None,
        check_every: int = 0,
    ) -> None:
        """Choose optimiser, loss, metrics and machine. Names are Keras's, in any case.

        `seed` is for fresh weights, the order of samples and the masks of Dropout. `preset` is the
        preset of the machine. `backend` is "rtl", "iss" (the golden model) or "fast". `latency` is
        the latency of the memories in cycles. "fast" is no machine, but makes the same bytes in
        numpy. If `check_every` is n, each n-th step of "fast" is taken on the RTL, too, and
        compared. With several `cores` the machine is a pod. Its cores share each batch, and learn
        the bytes that one core learns.

        A setting that is not given comes from the Strategy in scope now. If there is none, it comes
        from the Strategy in scope when the model was made. A preset from a Strategy is extended by
        the parts for training. Without a Strategy it is DEFAULT_PRESET, backend "rtl", latency 0
        and one core. Raises TrainingError for an unknown name or setting.
        """
        pod = current_strategy() or self._strategy
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
            backend=pod.training_backend if backend is None else backend,
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

    @takes(**_OF_FIT)
    def fit(
        self,
        x: Any,
        y: Any,
        batch_size: int = 32,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[Callback] | Callback | None = None,
        validation_split: float = 0.0,
        validation_data: Validation | None = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
    ) -> History:
        """Train, as Keras does: from epoch `initial_epoch` up to epoch `epochs`.

        The last `validation_split` of the samples, or `validation_data`, are evaluated after each
        epoch. The loss of a sample is multiplied by its weight and the weight of its class; other
        metrics are not. Raises TrainingError for bad data, and for arguments of the wrong type or
        range, before anything runs.
        """
        batch_size = whole("batch_size", batch_size, 1)
        epochs = whole("epochs", epochs, 0)
        initial_epoch = whole("initial_epoch", initial_epoch, 0)
        shuffle = flag("shuffle", shuffle)
        silent = _silent(verbose)
        callbacks = check_callbacks(callbacks)
        validation_split = real("validation_split", validation_split)
        if not 0 <= validation_split < 1:
            raise TrainingError(f"validation_split must be 0 to 1, not {validation_split}")
        given = self._checked(x, y, sample_weight, class_weight)
        checked: Data | None = None
        if validation_data is not None:
            parts = items("validation_data", validation_data, "x and y")
            if len(parts) not in (2, 3):
                raise TrainingError(f"validation_data must be x and y, not {len(parts)} items")
            checked = self._checked(*parts, prefix="validation ")
        elif validation_split:
            count = int(len(given.rows) * (1 - validation_split))
            if not 0 < count < len(given.rows):
                raise TrainingError("validation_split leaves no samples")
            checked = given.chosen(slice(count, None))
            given = given.chosen(slice(count))

        rows = given.rows
        bits = self._note(given)
        self.batch_size = min(batch_size, MOST_BATCH)
        batch_size = min(batch_size, len(rows))
        self._prepare(batch_size, bits)  # the batch must fit before callbacks begin
        history = History()
        progress = Progress(0 if silent else 1, epochs, -(-len(rows) // batch_size))
        everyone: list[Callback] = [*callbacks, history, progress]
        self.stop_training = False
        measured = ("loss", *self._compiled()["metrics"])
        validated = () if checked is None else tuple(f"val_{name}" for name in measured)
        self.log_names = (*measured, *validated)
        params = {"verbose": int(not silent), "epochs": epochs, "steps": progress.batches}
        logs: dict[str, float] = {}
        for each in everyone:
            each.set_params(params)
            each.set_model(self)
        for each in everyone:
            each.on_train_begin({})
        for epoch in range(initial_epoch, epochs):
            for each in everyone:
                each.on_epoch_begin(epoch, {})
            logs = self._epoch(given, batch_size, shuffle, everyone)
            if checked is not None:
                engine = self._ready(checked.rows, batch_size)
                found = self._measured(engine, checked, silent=True)
                logs |= {f"val_{name}": value for name, value in found.items()}
            for each in everyone:
                each.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        for each in everyone:
            each.on_train_end(logs)
        history.count_energy = self._count_energy(batch_size)
        return history

    @takes(**_OF_EVALUATE)
    def evaluate(
        self,
        x: Any,
        y: Any,
        batch_size: int = 32,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        *,
        return_dict: bool = False,
    ) -> float | list[float] | dict[str, float]:
        """Measure loss and metrics of any number of samples, and return them as Keras does.

        `batch_size` changes no result. A bar shows the progress where `verbose` is 1 or 2. Raises
        TrainingError as fit() does.
        """
        batch_size = whole("batch_size", batch_size, 1)
        silent = is_name(verbose, ("auto",)) or _silent(verbose)
        return_dict = flag("return_dict", return_dict)
        given = self._checked(x, y, sample_weight)
        found = self._measured(self._ready(given.rows, batch_size), given, silent=silent)
        return _as_asked(found, return_dict)

    @takes(steps=_STEPS, callbacks=Only((None,)))
    def predict(
        self, x: Any, batch_size: int = 32, verbose: int | str = "auto"
    ) -> NDArray[np.float32]:
        """Return the outputs of the network for any number of samples, (samples, units).

        Raises TrainingError as fit() does.
        """
        batch_size = whole("batch_size", batch_size, 1)
        silent = is_name(verbose, ("auto",)) or _silent(verbose)
        rows = self._rows(x, "x")
        engine = self._ready(rows, batch_size)
        parts = tqdm(in_parts(rows, engine.batch), "Predict", unit="step", disable=silent)
        found = [engine.predict(self._input(part, engine)) for part in parts]
        return np.concatenate(found).astype(np.float32)

    @takes()
    def train_on_batch(
        self,
        x: Any,
        y: Any,
        sample_weight: Any = None,
        class_weight: Mapping[int, float] | None = None,
        return_dict: bool = False,
    ) -> float | list[float] | dict[str, float]:
        """Train one step with all of these samples; return loss and metrics as they were before the
        step.

        The result has Keras's form. Raises TrainingError as fit() does.
        """
        return_dict = flag("return_dict", return_dict)
        given = self._checked(x, y, sample_weight, class_weight)
        self._note(given)
        most = max(len(given.rows), self._engine.batch if self._engine else 0)
        engine, total = self._training_engine(most), self._totals()
        batch = self._step(engine, given)
        self._batches_since_epoch += 1
        total.add(batch.loss, batch.outputs, given.labels)
        return _as_asked(total.logs(), return_dict)

    @takes()
    def test_on_batch(
        self, x: Any, y: Any, sample_weight: Any = None, return_dict: bool = False
    ) -> float | list[float] | dict[str, float]:
        """Measure loss and metrics of these samples. Raises TrainingError as fit() does."""
        return_dict = flag("return_dict", return_dict)
        given = self._checked(x, y, sample_weight)
        found = self._measured(self._ready(given.rows, len(given.rows)), given, silent=True)
        return _as_asked(found, return_dict)

    @takes(
        line_length=Only((None,), "columns are as wide as their text"),
        positions=Only((None,), "columns are as wide as their text"),
        expand_nested=Only((False, True)),
        show_trainable=Only((False,), "all layers are trained"),
        layer_range=Only((None,), "all layers are shown"),
    )
    def summary(self, *, print_fn: Callable[[str], object] | None = None) -> None:
        """Print the layers as Keras does: names, shapes of results, and numbers of weights.

        `print_fn` gets the text instead of standard output. Raises TrainingError for layers that
        cannot be trained together.
        """
        text = table(self.layers, self.name)
        if print_fn is None:
            print(printable(text), end="")
        elif callable(print_fn):  # type: ignore[reportUnnecessaryComparison]
            print_fn(text)
        else:
            raise TrainingError(f"print_fn must be a function, not {shown(print_fn)}")

    def count_params(self) -> int:
        """Count the weights. Raises TrainingError if the shape of a sample is not known."""
        counts = weights_of_layers(self.layers)
        if counts is None:
            raise TrainingError("the shape of a sample is not known: begin with Input, or call fit")
        return sum(counts)

    @takes()
    def save_weights(self, filepath: str | PathLike[str], overwrite: bool = True) -> None:
        """Save the weights alone: for Keras where the name ends in .h5, else as arrays of numpy.

        Raises TrainingError for .h5 where h5py is not installed, for a folder, and for an existing
        file where `overwrite` is False. Raises OSError if the file cannot be written.
        """
        path = check_target(filepath, overwrite=overwrite)
        write_weights(path, self.layers, self.get_weights())

    @takes(skip_mismatch=Only((False,), "all weights must fit"))
    def load_weights(self, filepath: str | PathLike[str]) -> None:
        """Take the weights from a file of save_weights(), or of Keras for the same layers.

        Raises TrainingError for a file with other weights, and OSError for a file that cannot be
        read.
        """
        path = check_path(filepath)
        try:
            found = read_weights(path.read_bytes(), self.layers, keras_shapes(self.stages()))
        except TrainingError as error:
            raise TrainingError(f"{path}: {error}") from None
        self.set_weights(found)

    def get_weights(self) -> list[Floats]:
        """Return the weights of each layer in turn, in Keras's order and shapes.

        The numbers are exactly the int16 numbers that learn (masters), with their exponents.
        """
        found = self.stages()
        return as_keras(found, weights(found, self.state()))

    @takes()
    def set_weights(self, weights: Sequence[Floats]) -> None:
        """Take weights, rounded to the nearest numbers that int16 masters can have.

        Raises TrainingError for other shapes than get_weights() has, and for weights that are too
        large.
        """
        self._state, self._engine = from_weights(self.stages(), weights), None

    @takes(include_optimizer=Only((True,), "save_weights() saves weights alone"))
    def save(self, filepath: str | PathLike[str], overwrite: bool = True) -> None:
        """Save everything: a model that is loaded again goes on byte for byte.

        Raises TrainingError for a model that has not been compiled, for a folder, and for an
        existing file where `overwrite` is False. Raises OSError if the file cannot be written.
        """
        from systola.training.checkpoint import save

        save(self, check_target(filepath, overwrite=overwrite))

    def move(self, strategy: Strategy) -> None:
        """Continue on the pod of a Strategy, with everything that has been learnt.

        Raises TrainingError for a pod that cannot train.
        """
        self._strategy = strategy
        if self.settings is not None:
            learning = ("optimizer", "loss", "metrics", "seed")
            with strategy.scope():
                self.compile(**{name: self.settings[name] for name in learning})

    def sync_to_cpu(self) -> Any:
        """Bring the weights back to the Keras model that from_keras() was given; return that model.

        A model that is not from Keras is returned as it is, as its weights are on the host.
        """
        if self.keras_model is None:
            return self
        self.keras_model.set_weights(self.get_weights())
        return self.keras_model

    @property
    def optimizer(self) -> RunningOptimizer:
        """The optimiser of compile(), with a `learning_rate` that may be set.

        Raises TrainingError before compile().
        """
        self._compiled()
        return RunningOptimizer(self)

    def use_optimizer(self, optimizer: Optimizer) -> None:
        """Continue the training with another optimiser; nothing else changes."""
        settings = self._compiled()
        if type(optimizer) is not type(settings["optimizer"]):
            self._keep_state()
            self._engine = None
        settings["optimizer"] = optimizer

    # The methods below train, step by step and epoch by epoch.

    def _count_energy(self, batch_size: int) -> Callable[[], StepEnergy | None]:
        """Return a function that counts the energy of a step with a whole batch."""
        engine = self._training_engine(batch_size)
        config, cores = self._compiled()["preset"], self._compiled()["cores"]
        task = replace(engine.task, cores=cores)
        return partial(step_energy, config, task, engine.step_cycles)

    def _epoch(
        self,
        given: Data,
        batch_size: int,
        shuffle: bool,
        everyone: Sequence[Callback],
    ) -> dict[str, float]:
        order = np.arange(len(given.rows))
        if shuffle:
            order = np.random.default_rng((self._seed(), self.epochs)).permutation(order)
        total = self._totals()
        for number, chosen in enumerate(in_parts(order, batch_size)):
            for each in everyone:
                each.on_train_batch_begin(number, {})
            # A callback may have called compile() or set_weights(), and then there is a new engine.
            engine = self._training_engine(batch_size)
            part = given.chosen(chosen)
            batch = self._step(engine, part)
            total.add(batch.loss, batch.outputs, part.labels)
            for each in everyone:
                each.on_train_batch_end(number, total.logs())
            if self.stop_training:
                break
        self._training_engine(batch_size).end_epoch()
        self.epochs += 1
        return total.logs()


def _as_asked(found: dict[str, float], return_dict: bool) -> float | list[float] | dict[str, float]:
    """Return loss and metrics in Keras's form: a dict or a list, or a single number if there are no
    metrics.
    """
    values = list(found.values())
    return found if return_dict else values[0] if len(values) == 1 else values


def _silent(verbose: object) -> bool:
    """Return whether `verbose` asks for no output; raise TrainingError for an unknown setting."""
    if is_name(verbose, ("auto",)):
        return False
    return not whole("verbose", int(verbose) if isinstance(verbose, bool) else verbose, 0, 2)


def _config(preset: object) -> Config:
    """Return a configuration as it is, or the preset of a name; raise TrainingError for anything
    else.
    """
    if isinstance(preset, Config):
        return preset
    if not isinstance(preset, str):
        raise TrainingError(f"a preset is a name or a Config, not {shown(preset)}")
    try:
        return named_preset(preset)
    except ConfigError as error:
        raise TrainingError(str(error)) from None
