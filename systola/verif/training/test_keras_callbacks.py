# SPDX-License-Identifier: Apache-2.0
"""Tests of Keras's callbacks and learning-rate schedules.

The expected stops, rates and values were computed by Keras 3.15 from the same logs and steps.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.training import (
    SGD,
    Callback,
    CosineDecay,
    CosineDecayRestarts,
    CSVLogger,
    Dense,
    EarlyStopping,
    ExponentialDecay,
    InverseTimeDecay,
    LambdaCallback,
    LearningRateScheduler,
    ModelCheckpoint,
    PiecewiseConstantDecay,
    PolynomialDecay,
    ReduceLROnPlateau,
    Sequential,
    TerminateOnNaN,
    TrainingError,
    load,
)

RNG = np.random.default_rng(4)
X, Y = RNG.uniform(0, 1, (16, 5)), RNG.integers(0, 3, 16)


def compiled(optimizer: Any = None, **how: Any) -> Any:
    model = Sequential([Dense(3, input_shape=(5,))])
    usual = {"metrics": ["accuracy"], "preset": "8x8-training", "backend": "iss"}
    model.compile(optimizer or SGD(0.5), **usual | how)
    return model


def fitted(model: Any, epochs: int, *callbacks: Any, **how: Any) -> dict[str, list[float]]:
    usual = {"batch_size": 8, "epochs": epochs, "verbose": 0, "callbacks": list(callbacks)}
    return model.fit(X, Y, **usual | how).history


class Given(Callback):
    """A callback that replaces the loss of each epoch in the logs of later callbacks."""

    def __init__(self, losses: list[float]) -> None:
        self._losses = losses

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["loss"] = self._losses[epoch]


LOSSES = [0.9, 0.8, 0.85, 0.79, 0.795, 0.81, 0.7, 0.9, 0.69, 0.695]


@pytest.mark.parametrize(
    ("options", "epochs", "best"),
    [
        ({}, 3, 1),
        ({"patience": 2}, 6, 3),
        ({"patience": 3}, 10, 8),
        ({"patience": 2, "min_delta": 0.05}, 4, 1),
        ({"patience": 2, "mode": "max"}, 3, 0),
        ({"patience": 1, "start_from_epoch": 6}, 8, 6),
        ({"patience": 3, "baseline": 0.75}, 3, 1),
        ({"patience": 3, "baseline": 0.85}, 10, 8),
    ],
)
def test_early_stopping(options: dict[str, Any], epochs: int, best: int) -> None:
    stopping = EarlyStopping("loss", **options)
    history = fitted(compiled(), 10, Given(LOSSES), stopping)
    assert (len(history["loss"]), stopping.best_epoch) == (epochs, best)


def test_the_best_weights_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that EarlyStopping restores every byte of the best epoch.

    A later fit() begins with these bytes.
    """
    stopping = EarlyStopping("loss", patience=2, restore_best_weights=True, verbose=1)
    model, expected = compiled(SGD(0.5, 0.9)), compiled(SGD(0.5, 0.9))
    fitted(model, 10, Given(LOSSES), stopping)
    fitted(expected, 4)
    for kind in ("masters", "velocities", "bits", "unit_bits"):
        assert all(map(np.array_equal, *(getattr(m.state(), kind) for m in (model, expected))))
    assert np.array_equal(model.predict(X), expected.predict(X))
    assert capsys.readouterr().out == (
        "Epoch 6: early stopping\nRestoring model weights from the end of the best epoch: 4.\n"
    )


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({"patience": 1}, [0.5, 0.5, 0.5, 0.05, 0.05, 0.005, 0.0005, 0.0005, 5e-5, 5e-5]),
        ({"patience": 2, "factor": 0.5}, [0.5] * 6 + [0.25] * 4),
        (
            {"patience": 1, "factor": 0.5, "cooldown": 2},
            [0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625],
        ),
        ({"patience": 1, "min_lr": 0.02}, [0.5] * 3 + [0.05] * 2 + [0.02] * 5),
        (
            {"patience": 1, "mode": "max", "factor": 0.5, "min_delta": 0.02},
            [0.5, *(0.5 / 2**n for n in range(9))],
        ),
    ],
)
def test_reduce_on_plateau(options: dict[str, Any], rates: list[float]) -> None:
    """Check the learning rate of each epoch, as ReduceLROnPlateau writes it into the logs."""
    history = fitted(compiled(), 10, Given(LOSSES), ReduceLROnPlateau("loss", **options))
    assert history["learning_rate"] == pytest.approx(rates)


def test_the_least_rate() -> None:
    """Check that a reduction of the rate ends at the machine's least rate, and training goes on."""
    model = compiled()
    fitted(model, 10, Given([1.0] * 10), ReduceLROnPlateau("loss", factor=0.01, patience=1))
    assert model.optimizer.learning_rate == 2.0**-20


def test_scheduler_trains_as_parts_do() -> None:
    """Check that LearningRateScheduler gives the same bytes as one fit() for each epoch.

    Before each fit(), the user sets the learning rate.
    """
    for schedule in (
        lambda epoch, rate: rate if epoch < 2 else rate / 4,
        lambda epoch: 0.5 if epoch < 2 else 0.125 / 4 ** (epoch - 2),
    ):
        model, parts = compiled(), compiled()
        history = fitted(model, 4, LearningRateScheduler(schedule))
        assert history["learning_rate"] == [0.5, 0.5, 0.125, 0.03125]
        for epoch, rate in enumerate(history["learning_rate"]):
            parts.compile(SGD(rate), preset="8x8-training", backend="iss")
            fitted(parts, epoch + 1, initial_epoch=epoch)
        assert all(map(np.array_equal, model.get_weights(), parts.get_weights()))


def test_the_rate_that_is_set_is_used_and_saved(tmp_path: Path) -> None:
    model = compiled(SGD(0.5, 0.9))
    model.optimizer.learning_rate = 0.25
    assert (model.optimizer.learning_rate, model.optimizer.momentum) == (0.25, 0.9)
    model.save(tmp_path / "m.tpu")
    loaded: Any = load(tmp_path / "m.tpu")
    assert loaded.optimizer.learning_rate == 0.25
    other = compiled(SGD(0.25, 0.9))
    for each in (model, loaded, other):
        fitted(each, 2)
    assert all(map(np.array_equal, model.get_weights(), other.get_weights()))
    assert all(map(np.array_equal, loaded.get_weights(), other.get_weights()))
    assert model.optimizer.iterations == 4
    for wrong in (0, -1, 9, "fast", None):
        with pytest.raises(TrainingError, match="learning_rate"):
            model.optimizer.learning_rate = wrong
    assert model.optimizer.learning_rate == 0.25


SCHEDULES: list[tuple[Any, list[float]]] = [
    (ExponentialDecay(0.1, 10, 0.5), [0.1, 0.0812252, 0.0757858, 0.0615572, 0.05, 0.0176777]),
    (ExponentialDecay(0.1, 10, 0.5, True), [0.1, 0.1, 0.1, 0.1, 0.05, 0.025]),
    (InverseTimeDecay(0.5, 4, 0.25), [0.5, 0.4210526, 0.4, 0.3478261, 0.3076923, 0.1951219]),
    (InverseTimeDecay(0.5, 4, 0.25, True), [0.5, 0.5, 0.4, 0.4, 0.3333333, 0.2]),
    (
        PolynomialDecay(0.1, 20, end_learning_rate=0.01, power=2.0),
        [0.1, 0.075025, 0.0676, 0.048025, 0.0325, 0.01],
    ),
    (
        PolynomialDecay(0.1, 8, 0.01, 0.5, cycle=True),
        [0.1, 0.0811512, 0.0736396, 0.0418198, 0.0651135, 0.0520936],
    ),
    (PiecewiseConstantDecay([3, 7], [1.0, 0.5, 0.125]), [1.0, 1.0, 0.5, 0.5, 0.125, 0.125]),
    (CosineDecay(0.4, 16, 0.1), [0.4, 0.3696645, 0.3472793, 0.2551163, 0.151117, 0.04]),
    (
        CosineDecay(0.0, 16, warmup_target=0.5, warmup_steps=4),
        [0.0, 0.375, 0.5, 0.4578674, 0.3456709, 0.0],
    ),
    (
        CosineDecayRestarts(0.4, 4, m_mul=0.5, alpha=0.05),
        [0.4, 0.0756497, 0.21, 0.1513549, 0.0478249, 0.0280052],
    ),
    (
        CosineDecayRestarts(0.4, 4, t_mul=1.0),
        [0.4, 0.0585786, 0.4, 0.0585786, 0.2, 0.3414214],
    ),
    (CosineDecayRestarts(0.4, 1, t_mul=3.0), [0.4, 0.1, 0.4, 0.3, 0.1, 0.2347296]),
]


@pytest.mark.parametrize(("schedule", "rates"), SCHEDULES)
def test_schedules(schedule: Any, rates: list[float], tmp_path: Path) -> None:
    """Check a schedule's rates at some steps against Keras, and that a file keeps the schedule."""
    steps = (0, 3, 4, 7, 10, 25)
    assert [schedule(step) for step in steps] == pytest.approx(rates, abs=1e-7)
    model = compiled(SGD(schedule, 0.5))
    model.save(tmp_path / "m.tpu")
    loaded: Any = load(tmp_path / "m.tpu")
    assert loaded.settings["optimizer"] == SGD(schedule, 0.5)
    for step in steps:
        loaded.steps = step
        assert loaded.optimizer.learning_rate == max(schedule(step), 2.0**-20)


def test_each_step_has_its_rate() -> None:
    """Check that a schedule gives the bytes of steps that are trained one by one at its rates."""
    schedule = ExponentialDecay(0.5, 1, 0.5)
    model, parts = compiled(SGD(schedule)), compiled()
    model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
    for step in range(4):
        parts.compile(SGD(0.5**step / 2), preset="8x8-training", backend="iss")
        parts.train_on_batch(X[4 * step : 4 * step + 4], Y[4 * step : 4 * step + 4])
    assert all(map(np.array_equal, model.get_weights(), parts.get_weights()))
    with pytest.raises(TrainingError, match="has a schedule"):
        fitted(model, 1, LearningRateScheduler(lambda epoch: 0.5))


def test_checkpoints_of_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m{epoch}.tpu"
    saving = ModelCheckpoint(path, "loss", save_best_only=True, verbose=1)
    fitted(compiled(), 10, Given(LOSSES), saving)
    assert sorted(int(each.stem[1:]) for each in tmp_path.iterdir()) == [1, 2, 4, 7, 9]
    assert "Epoch 3: loss did not improve from 0.80000" in capsys.readouterr().out
    saving = ModelCheckpoint(
        tmp_path / "w{epoch}",
        "loss",
        save_weights_only=True,
        save_best_only=True,
        initial_value_threshold=0.7,
    )
    model = compiled()
    fitted(model, 9, Given(LOSSES), saving)
    assert [each.name for each in tmp_path.glob("w*")] == ["w9"]
    other = compiled(seed=5)
    other.load_weights(tmp_path / "w9")
    assert all(map(np.array_equal, other.get_weights(), model.get_weights()))


def test_csv(tmp_path: Path) -> None:
    path, model = tmp_path / "log.csv", compiled()
    history = fitted(model, 2, CSVLogger(path))
    rows = list(csv.reader(path.read_text().splitlines()))
    assert rows[0] == ["epoch", "accuracy", "loss", "val_accuracy", "val_loss"]
    assert rows[1:] == [
        [str(n), str(history["accuracy"][n]), str(history["loss"][n]), "NA", "NA"] for n in (0, 1)
    ]
    fitted(model, 1, CSVLogger(path, separator=";", append=True), validation_data=(X, Y))
    assert len(path.read_text().splitlines()) == 4
    assert path.read_text().splitlines()[3].count(";") == 4
    fitted(model, 1, CSVLogger(path))
    assert len(path.read_text().splitlines()) == 2


def test_order_of_calls() -> None:
    """Check the order and the arguments of all calls of a callback.

    A callback that stops the training ends the epoch after its batch.
    """
    calls: list[Any] = []
    names = [name for name in vars(Callback) if name.startswith("on_")]
    model = compiled()

    def note(name: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            calls.append((name, *arguments[:-1]))
            model.stop_training = ("on_epoch_begin", 1) in calls and name == "on_train_batch_end"

        return call

    fitted(model, 3, LambdaCallback(**{name: note(name) for name in names}))
    batches = [(f"on_train_batch_{when}", n) for n in (0, 1) for when in ("begin", "end")]
    assert calls == [
        *(("on_train_begin",), ("on_epoch_begin", 0), *batches, ("on_epoch_end", 0)),
        *(("on_epoch_begin", 1), *batches[:2], ("on_epoch_end", 1), ("on_epoch_begin", 2)),
        *(*batches[:2], ("on_epoch_end", 2), ("on_train_end",)),
    ]


def test_losses_that_are_no_numbers() -> None:
    stopping = TerminateOnNaN()
    stopping.model = compiled()
    for loss, stops in ((1.0, False), (float("nan"), True), (float("inf"), True)):
        stopping.model.stop_training = False
        stopping.on_train_batch_end(0, {"loss": loss})
        assert stopping.model.stop_training == stops
    fitted(compiled(), 1, TerminateOnNaN())


WRONG: dict[str, Callable[[Path], object]] = {
    "monitor": lambda path: EarlyStopping(monitor=5),
    "mode": lambda path: EarlyStopping(mode="least"),
    "patience": lambda path: EarlyStopping(patience=1.5),
    "min_delta": lambda path: EarlyStopping(min_delta="a"),
    "baseline": lambda path: EarlyStopping(baseline="a"),
    "restore_best_weights": lambda path: EarlyStopping(restore_best_weights=None),
    "start_from_epoch": lambda path: EarlyStopping(start_from_epoch=-1),
    "verbose": lambda path: EarlyStopping(verbose=7),
    "colour": lambda path: EarlyStopping(colour=1),
    "factor": lambda path: ReduceLROnPlateau(factor=1.0),
    "cooldown": lambda path: ReduceLROnPlateau(cooldown=None),
    "min_lr": lambda path: ReduceLROnPlateau(min_lr="low"),
    "schedule": lambda path: LearningRateScheduler(0.1),
    "separator": lambda path: CSVLogger(path / "a", separator=",,"),
    "append": lambda path: CSVLogger(path / "a", append="yes"),
    "path": lambda path: CSVLogger(5),
    "a path": lambda path: ModelCheckpoint(None),
    "save_freq": lambda path: ModelCheckpoint(path / "a", save_freq=10),
    "save_best_only": lambda path: ModelCheckpoint(path / "a", save_best_only=1),
    "on_epoch_end": lambda path: LambdaCallback(on_epoch_end=5),
    "on_test_end": lambda path: LambdaCallback(on_test_end=print),
    "EarlyStopping monitors 'val_loss'": lambda path: fitted(compiled(), 1, EarlyStopping()),
    "give validation_data": lambda path: fitted(compiled(), 1, ReduceLROnPlateau()),
    "monitors 'acc'": lambda path: fitted(
        compiled(), 1, ModelCheckpoint(path / "a", "acc", save_best_only=True)
    ),
    "schedule returns": lambda path: fitted(
        compiled(), 1, LearningRateScheduler(lambda epoch: None)
    ),
    "learning_rate must": lambda path: fitted(compiled(), 1, LearningRateScheduler(lambda e: 99)),
    "it is a folder": lambda path: fitted(compiled(), 1, CSVLogger(path)),
    "decay_steps": lambda path: ExponentialDecay(0.1, 0, 0.5),
    "initial_learning_rate": lambda path: CosineDecay(100, 4),
    "decay_rate": lambda path: InverseTimeDecay(0.1, 4, "slow"),
    "staircase": lambda path: ExponentialDecay(0.1, 4, 0.5, staircase=2),
    "boundaries": lambda path: PiecewiseConstantDecay([1, 2], [0.1, 0.2]),
    "boundaries must rise": lambda path: PiecewiseConstantDecay([2, 1], [0.1, 0.2, 0.3]),
    "warmup_steps": lambda path: CosineDecay(0.1, 4, warmup_steps=-1),
    "t_mul": lambda path: CosineDecayRestarts(0.1, 4, t_mul=0.5),
    "'decay_steps'": lambda path: ExponentialDecay(0.1),
}
"""Calls with a wrong argument; the key is a part of the error message that refuses the call."""


@pytest.mark.parametrize("says", WRONG)
def test_mistakes(says: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as caught:
        WRONG[says](tmp_path)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert not any(tmp_path.iterdir())
