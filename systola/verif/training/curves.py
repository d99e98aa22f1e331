# SPDX-License-Identifier: Apache-2.0
"""Trains the tasks of docs/training.md on the machine and, with numpy, in float32.

`python -m systola.verif.training.curves` shows the tutorial in small. `--store` trains all tasks
with the fast back end and stores the losses for the page, and `--store-long` does so with the long
tasks: the first tutorial whole with three seeds, 200 epochs, and the second tutorial. `--only TEXT`
takes the tasks with TEXT in their name, and leaves the other tasks as they are. `--backend rtl`
takes the simulated RTL.
`--draw FILE` draws both loss curves.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.training import (
    LSTM,
    SGD,
    Activation,
    Adam,
    Add,
    BatchNormalization,
    Callback,
    Concatenate,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Input,
    MaxPooling2D,
    ReLU,
    RMSprop,
    Sequential,
)
from systola.training.datasets import imdb, mnist, pad_sequences
from systola.training.functional import linked
from systola.training.layers import Layer
from systola.training.optimizers import Optimizer
from systola.training.settings import BACKENDS, FAST
from systola.training.state import glorot, weights
from systola.verif.training.data import Samples, clusters, digits, images, reviews
from systola.verif.training.page import STORED, STORED_LONG, picture, stored
from systola.verif.training.referee import Referee

PRESET = "base-training"
WORDS, VOCABULARY = 10, 60
SEED = 0


@dataclass(frozen=True)
class Task:
    """A training task: a network, the samples that it is trained on, and its settings."""

    name: str
    layers: tuple[Layer, ...]
    optimizer: Optimizer
    data: tuple[Samples, Samples]
    batch: int = 64
    epochs: int = 5
    loss: str = "sparse_categorical_crossentropy"
    seed: int = SEED

    def targets(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """Return labels in the form of float32 training, a row of targets for each sample."""
        if self.loss == "binary_crossentropy":
            return labels[:, np.newaxis].astype(np.float32)
        return np.eye(10, dtype=np.float32)[labels]


@cache
def tasks() -> tuple[Task, ...]:
    """Return the tasks of docs/training.md, with the tasks on handwritten digits first."""
    wide = (Dense(512, "relu"), Dropout(0.2), Dense(10))
    points = clusters(7400, features=784, classes=10, seed=7)
    many = tuple((part[0], part[1]) for part in _split(points, 6400))
    train, test = many
    return (
        Task("digits, 64-512-10, SGD", wide, SGD(0.4), digits()),
        Task("digits, 64-512-10, momentum", wide, SGD(0.05, 0.9), digits()),
        Task("digits, 64-512-10, Adam", wide, Adam(), digits()),
        Task("digits, 64-512-10, RMSprop", wide, RMSprop(), digits()),
        Task("6,400 points, 784-512-10, SGD", wide, SGD(0.01), (train, test)),
        Task("6,400 points, 784-512-10, momentum", wide, SGD(0.001, 0.9), (train, test)),
        Task("digits, two convolutions, SGD", small_cnn(), SGD(0.1), images(), 32),
        Task("digits, Add and Concatenate, SGD", residual(), SGD(0.2), digits()),
        Task(
            "texts, LSTM 100, SGD",
            (Input((WORDS,)), Embedding(VOCABULARY, 16), LSTM(100), Dense(1)),
            SGD(1.0),
            (texts(800, 1), texts(400, 2)),
            *(16, 6, "binary_crossentropy"),
        ),
        Task(
            "texts, two LSTM 50, Adam",
            (
                *(Input((WORDS,)), Embedding(VOCABULARY, 16), LSTM(50, return_sequences=True)),
                *(Dropout(0.2), LSTM(50), Dense(1)),
            ),
            Adam(0.002),
            (texts(1600, 3), texts(400, 2)),
            *(16, 5, "binary_crossentropy"),
        ),
        Task("digits, Dense with BatchNormalization, SGD", normalized(), SGD(0.1), digits()),
        Task(
            "digits, convolutions with BatchNormalization, Adam",
            normalized_maps(),
            Adam(),
            images(),
            32,
        ),
    )


def tutorial() -> Task:
    """Return the first tutorial in small: its network and optimiser, with 20 steps an epoch."""
    layers = (Dense(512, "relu"), Dropout(0.2), Dense(10))
    train, test = mnist.load_data()
    parts = [
        (x[:count].reshape(count, -1) / 255, y[:count].astype(int))
        for (x, y), count in ((train, 1280), (test, 320))
    ]
    return Task("1,280 digits, 784-512-10, Adam", layers, Adam(), (parts[0], parts[1]), epochs=3)


def long_tasks() -> list[Task]:
    """Return the tasks that take long, from both tutorials.

    The tasks are the whole first tutorial with three seeds, 200 epochs on digits, and eight epochs
    of the second tutorial.
    """
    parts = [(x.reshape(len(x), -1) / np.float32(255), y.astype(int)) for x, y in mnist.load_data()]
    layers, data = (Dense(512, "relu"), Dropout(0.2), Dense(10)), (parts[0], parts[1])
    whole = [
        Task(f"{len(parts[0][0]):,} digits, 784-512-10, Adam, seed {seed}", layers, Adam(), data)
        for seed in range(3)
    ]
    (x, y), test = digits()
    small, some = (Dense(32, "relu"), Dense(10)), ((x[:512], y[:512]), test)
    return [
        *(replace(task, batch=1024, seed=seed) for seed, task in enumerate(whole)),
        *(
            Task(f"512 digits, 64-32-10, {name}, 200 epochs", small, optimizer, some, 32, 200)
            for name, optimizer in (
                ("SGD", SGD(0.1)),
                ("momentum", SGD(0.1, 0.9)),
                ("Adam", Adam()),
            )
        ),
        second_tutorial(),
    ]


def second_tutorial() -> Task:
    """Return the second tutorial: all texts of 250 words to train with, and 10,000 to test."""
    words, vocabulary = 250, 15000
    parts = [
        (pad_sequences(texts, maxlen=words).astype(np.float32), praise.astype(int))
        for texts, praise in imdb.load_data(num_words=vocabulary)
    ]
    train, (x_test, y_test) = parts
    return Task(
        f"{len(train[0]):,} texts, 15000-32, LSTM 100, Adam",
        (Input((words,)), Embedding(vocabulary, 32), LSTM(100), Dense(1)),
        Adam(),
        (train, (x_test[:10_000], y_test[:10_000])),
        *(64, 8, "binary_crossentropy"),
    )


def residual() -> tuple[Layer, ...]:
    """Return a network with an Add and a Concatenate.

    The Add joins a Dense with the inputs of this Dense. The Concatenate joins their sum with
    another Dense.
    """
    x = Input((64,))
    first = Dense(128, "relu")(x)
    added = ReLU()(Add()([Dense(128)(first), first]))
    rows = Concatenate()([added, Dense(32, "relu")(first)])
    return tuple(linked(x, Dense(10)(Dropout(0.2)(rows))))


def normalized() -> tuple[Layer, ...]:
    """Return a perceptron with a BatchNormalization before its activation."""
    first = Input((64,)), Dense(512), BatchNormalization(), Activation("relu")
    return (*first, Dropout(0.2), Dense(10))


def normalized_maps() -> tuple[Layer, ...]:
    """Return a network of two convolutions, each with a BatchNormalization.

    The first convolution is normalised before its activation, the second after it.
    """
    # With Keras's own momentum, five epochs would be too short for the moving means.
    one, other = (BatchNormalization(momentum=0.9) for _ in range(2))
    return (
        *(Input((8, 8, 1)), Conv2D(16, 3, padding="same", use_bias=False), one, ReLU()),
        *(MaxPooling2D(2), Conv2D(32, 3, activation="relu"), other, Flatten(), Dense(10)),
    )


def texts(count: int, seed: int) -> Samples:
    """Return `count` made-up texts of up to ten words, with their labels."""
    return reviews(count, words=WORDS, vocabulary=VOCABULARY, seed=seed)


def small_cnn() -> tuple[Layer, ...]:
    """Return a network with two convolutions, for images of 8 x 8 pixels."""
    return (
        Input((8, 8, 1)),
        Conv2D(16, 3, padding="same", activation="relu"),
        MaxPooling2D(2),
        Conv2D(32, 3, activation="relu"),
        Dropout(0.2),
        Flatten(),
        Dense(10),
    )


def _split(samples: Samples, count: int) -> tuple[Samples, Samples]:
    x, y = samples
    return (x[:count], y[:count]), (x[count:], y[count:])


class Beside(Callback):
    """A callback that trains the network in float32, too, and notes both results of each epoch."""

    def __init__(self, task: Task, referee: Referee, *, say: bool) -> None:
        self._task = task
        self._referee = referee
        self._say = say
        self.epochs: list[dict[str, float]] = []

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        """Train an epoch in float32; note and print its results and the results of the machine."""
        (x, y), (x_test, y_test) = self._task.data
        loss, accuracy = self._referee.epoch(x, self._task.targets(y), self._task.batch)
        _, right = self._referee.evaluate(x_test, self._task.targets(y_test))
        found = {
            "loss": logs["loss"],
            "float_loss": loss,
            "accuracy": logs["accuracy"],
            "float_accuracy": accuracy,
            "test": logs["val_accuracy"],
            "float_test": right,
        }
        self.epochs.append(found)
        if self._say:
            print(
                f"epoch {epoch + 1}: loss {found['loss']:.4f} (float32 {loss:.4f}), accuracy "
                f"{found['accuracy']:.2%} ({accuracy:.2%}), on test images {found['test']:.2%} "
                f"({right:.2%})",
                flush=True,
            )


def train(task: Task, backend: str, *, say: bool) -> dict[str, Any]:
    """Train a task on the machine and in float32; return the results, epoch by epoch."""
    (x, y), test = task.data
    model = Sequential(task.layers)
    how: dict[str, Any] = {"metrics": ["accuracy"], "seed": task.seed, "preset": PRESET}
    model.compile(task.optimizer, task.loss, backend=backend, **how)
    found = model.stages(x[0].size)
    start = weights(found, glorot(found, task.seed))
    referee = Referee(found, start, task.optimizer, task.loss, seed=task.seed)
    beside = Beside(task, referee, say=say)
    options: dict[str, Any] = {"batch_size": task.batch, "epochs": task.epochs, "verbose": 0}
    model.fit(x, y, validation_data=test, callbacks=[beside], **options)
    return {"name": task.name, "epochs": beside.epochs}


def _store(path: Path, every: Sequence[Task], only: str) -> None:
    """Train each task that has `only` in its name or no results yet, and store all results."""
    before = {result["name"]: result for result in stored(path)}
    results = [
        train(task, FAST, say=True)
        if only in task.name or task.name not in before
        else before[task.name]
        for task in every
    ]
    rounded = json.loads(json.dumps(results), parse_float=lambda text: round(float(text), 6))
    path.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run the command `python -m systola.verif.training.curves`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, default=FAST)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--store-long", action="store_true")
    parser.add_argument("--only", metavar="TEXT", default="", help="of --store and --store-long")
    parser.add_argument("--draw", type=Path, metavar="FILE.svg")
    arguments = parser.parse_args()
    for wanted, path, some in (
        (arguments.store, STORED, tasks),
        (arguments.store_long, STORED_LONG, long_tasks),
    ):
        if wanted:
            _store(path, some(), arguments.only)
    if arguments.store or arguments.store_long:
        return 0
    start = time.monotonic()
    result = train(tutorial(), arguments.backend, say=True)
    print(f"{result['name']}: {time.monotonic() - start:.0f} s")
    if arguments.draw:
        arguments.draw.parent.mkdir(parents=True, exist_ok=True)
        arguments.draw.write_bytes(picture([result]))
        print(f"both loss curves: {arguments.draw}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
