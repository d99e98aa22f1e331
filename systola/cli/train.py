# SPDX-License-Identifier: Apache-2.0
"""The command tpu train: a network learns on the machine."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from systola.cli.arguments import add_json, configuration, positive, whole_number
from systola.cli.errors import UserError
from systola.cli.file_names import InputName, checkpoint_names
from systola.cli.inputs import open_npz, read_array
from systola.cli.output import STANDARD_OUTPUT, write_output
from systola.cli.report import to_json
from systola.runtime.make_backend import MAX_LATENCY
from systola.runtime.pod.strategy import MAX_CORES
from systola.runtime.report_table import compact, energy_lines
from systola.sim.notices import is_quiet
from systola.training import SGD, ModelCheckpoint, Sequential, TrainingError, from_keras, load
from systola.training.checkpoint_names import NamesError
from systola.training.describe import is_description, layers
from systola.training.keras_file import read_keras
from systola.training.loss import LOSSES
from systola.training.model import DEFAULT_PRESET
from systola.training.optimizers import NAMES, ROUNDINGS
from systola.training.settings import BACKENDS
from systola.training.step_energy import StepEnergy

DEFAULT_BATCH = 64
HELP = "train a network, every step of it on the machine"
_TEST = ("x_test", "y_test")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command.

    An option that is not given comes from a saved model, else it has its default.
    """
    parser.add_argument(
        "model",
        type=_model_name,
        metavar="MODEL",
        help="a saved one, which goes on with its settings, a .keras file (takes Keras), or "
        "layers such as 512,dropout=0.2,10",
    )
    parser.add_argument(
        "--data",
        type=InputName,
        required=True,
        metavar="FILE.npz",
        help="file with arrays x and y, and perhaps x_test and y_test to evaluate",
    )
    parser.add_argument("--epochs", type=whole_number(1), default=1, metavar="E")
    parser.add_argument("--batch-size", type=whole_number(1), default=None, metavar="B")
    parser.add_argument(
        "--optimizer", choices=NAMES, default=None, help="default: sgd, with the rate of Keras"
    )
    parser.add_argument("--learning-rate", type=positive, default=None, metavar="R")
    parser.add_argument("--momentum", type=float, default=None, metavar="M")
    parser.add_argument(
        "--rounding",
        choices=ROUNDINGS,
        default=None,
        help=f"rounding of updates (default: {ROUNDINGS[0]})",
    )
    parser.add_argument("--loss", choices=LOSSES, default=None, help=f"default: {LOSSES[0]}")
    parser.add_argument(
        "--seed",
        type=whole_number(0, (1 << 31) - 1),
        default=None,
        metavar="S",
        help="seed of weights, order and masks (default: 0)",
    )
    parser.add_argument(
        "--preset",
        type=configuration,
        default=None,
        metavar="P",
        help=f"any preset with -training after its name (default: {DEFAULT_PRESET})",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=None,
        help="fast: numpy, with the bytes of the machine (default: rtl)",
    )
    parser.add_argument(
        "--check-every",
        type=whole_number(1),
        default=None,
        metavar="N",
        help="with --backend fast: each N-th step is taken on the RTL, too, and compared",
    )
    parser.add_argument(
        "--latency", type=whole_number(0, MAX_LATENCY), default=None, metavar="CYCLES"
    )
    parser.add_argument(
        "--cores",
        type=whole_number(1, MAX_CORES),
        default=None,
        metavar="N",
        help="cores that share each batch (default: 1)",
    )
    parser.add_argument(
        "--save",
        type=checkpoint_names,
        metavar="FILE.tpu",
        help="save the model here after each epoch; {epoch} is its number, {loss} its loss",
    )
    parser.add_argument(
        "--mhz", type=positive, metavar="F", help="clock, for operations in a second"
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    model = _model(arguments)
    data = _arrays(arguments.data)
    with _mistakes(arguments.data):
        test = (data["x_test"], data["y_test"]) if "x_test" in data else None
        history = model.fit(
            data["x"],
            data["y"],
            batch_size=arguments.batch_size or model.batch_size or DEFAULT_BATCH,
            epochs=arguments.epochs,
            validation_data=test,
            callbacks=[ModelCheckpoint(str(arguments.save))] if arguments.save else [],
            verbose=0 if is_quiet() else 1,
        )
    settings = model.settings
    assert settings is not None
    step = history.energy
    figures: dict[str, object] = {
        "preset": settings["preset"].name,
        "backend": settings["backend"],
        "cores": settings["cores"],
        "epochs": model.epochs,
        "steps": model.steps,
        "step_cycles": step and step.cycles,
        "step_energy": step and step.figures(),
        **history.history,
    }
    if arguments.json:
        write_output(arguments.json, to_json(figures))
    if arguments.json != STANDARD_OUTPUT:
        for name, values in history.history.items():
            print(f"{name:<13} {values[-1]:.4f}")
        if step:
            print("\n".join(_step_lines(step, arguments.mhz)))
    return 0


def _step_lines(step: StepEnergy, mhz: float | None) -> list[str]:
    """Return energy and operations of a step as text."""
    lines = energy_lines(f"a step of {step.samples} samples", step.energy)
    if mhz and (rate := step.operations_per_second(mhz)):
        lines.append(f"{compact(rate)} operations a second at {mhz:g} MHz")
    return lines


def _model_name(text: str) -> str:
    """Convert the argument for the model, for argparse: a description, or the name of a file to
    read.
    """
    return text if is_description(text) else InputName(text)


def _given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options with these names that the command line gives, by name."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _model(arguments: argparse.Namespace) -> Sequential:
    machine = _given(arguments, "preset", "backend", "latency", "cores", "check_every")
    learning = _given(arguments, "loss", "seed")
    chosen = NAMES[arguments.optimizer] if arguments.optimizer else None
    changed = _given(arguments, "learning_rate", "momentum", "rounding")
    with _mistakes():
        if not (is_description(arguments.model) or arguments.model.endswith(".keras")):
            model = load(arguments.model, **machine, **learning)
            assert model.settings is not None
            model.use_optimizer(replace(chosen or model.settings["optimizer"], **changed))
            return model
        if chosen or changed:
            learning["optimizer"] = replace(chosen or SGD(), **changed)
    with _mistakes(arguments.model):
        if is_description(arguments.model):
            model = Sequential(layers(arguments.model))
        else:
            model = from_keras(read_keras(arguments.model))
        model.compile(metrics=["accuracy"], **learning, **machine)
    return model


def _arrays(path: str) -> dict[str, NDArray[Any]]:
    archive = open_npz(path)
    tests = _TEST if set(_TEST) <= set(archive.names) else ()
    return {name: read_array(path, archive, name) for name in ("x", "y", *tests)}


@contextmanager
def _mistakes(path: str | None = None) -> Generator[None]:
    """Turn a TrainingError into a UserError, which names the file at `path` if there is one."""
    try:
        yield
    except NamesError as error:
        raise UserError(f"--save: {error}") from None
    except TrainingError as error:
        raise UserError(f"{path}: {error}" if path else str(error)) from None
