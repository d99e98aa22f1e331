# SPDX-License-Identifier: Apache-2.0
"""A model in a file: layers, settings, and every byte of what it has learnt."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from systola.runtime.plain_archive import check_members
from systola.runtime.pod.strategy import current_strategy
from systola.training.errors import TrainingError
from systola.training.layers import (
    LSTM,
    Activation,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Input,
    Layer,
    MaxPooling2D,
)
from systola.training.model import Sequential
from systola.training.numbers import velocity_bits
from systola.training.optimizers import SGD
from systola.training.state import State

FORMAT = "systola training 1"
_MACHINE = ("preset", "backend", "latency", "cores")


class Saved(Protocol):
    """What is read of a model."""

    layers: list[Layer]
    settings: dict[str, Any] | None
    epochs: int
    steps: int

    @property
    def input_bits(self) -> int | None:
        """Fraction bits of the samples."""
        ...

    def state(self) -> State:
        """What it has learnt."""
        ...


_LAYERS = {
    kind.__name__: kind
    for kind in (
        *(Input, Flatten, Dense, Conv2D, MaxPooling2D, Activation, Dropout),
        *(Embedding, LSTM),
    )
}


def save(model: Saved, path: str | PathLike[str]) -> None:
    """Saves a model that has been compiled."""
    if model.settings is None:
        raise TrainingError("call compile() before save()")
    state, settings = model.state(), dict(model.settings)
    about = {
        "format": FORMAT,
        "layers": [_written(layer) for layer in model.layers],
        "settings": settings
        | {"optimizer": asdict(settings["optimizer"]), "preset": settings["preset"].name},
        "bits": state.bits,
        "unit_bits": state.unit_bits,
        "input_bits": model.input_bits,
        "epochs": model.epochs,
        "steps": model.steps,
    }
    arrays: dict[str, Any] = {f"master{n}": values for n, values in enumerate(state.masters)}
    arrays |= {f"velocity{n}": values for n, values in enumerate(state.velocities)}
    temporary = Path(f"{path}.part")
    with temporary.open("wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
    temporary.replace(path)  # an interruption leaves the file before it


@dataclass(frozen=True)
class Checkpoint:
    """What a file has of a model."""

    layers: list[Layer]
    settings: dict[str, Any]
    """What compile() was given, the optimiser as its numbers, the preset as its name."""
    state: State
    input_bits: int | None
    epochs: int
    steps: int


def read(content: bytes) -> Checkpoint:
    """What `save` has written. Raises TrainingError where it is something else."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            check_members(archive.zip, len(content))
            about = json.loads(str(archive["about"]))
            arrays = {name: archive[name] for name in archive.files if name != "about"}
        if about["format"] != FORMAT:
            raise KeyError("format")
        masters, velocities = (
            tuple(arrays[name] for name in sorted(arrays) if name.startswith(kind))
            for kind in ("master", "velocity")
        )
        more = velocity_bits(about["settings"]["optimizer"]["momentum"]) if velocities else 0
        bits, unit_bits = tuple(about["bits"]), tuple(about["unit_bits"])
        return Checkpoint(
            layers=[_read(layer) for layer in about["layers"]],
            settings=about["settings"],
            state=State(masters, velocities, bits, unit_bits, more),
            input_bits=about["input_bits"],
            epochs=about["epochs"],
            steps=about["steps"],
        )
    except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        raise TrainingError("it is no model that was saved by training") from None


def load(path: str | PathLike[str], **machine: Any) -> Sequential:
    """The model that `save` has stored; `machine`: preset, backend, latency, cores, as for
    compile(). What is not given is that of the Strategy in whose scope this is, else the file's.

    Raises OSError where there is no such file, TrainingError where it is something else.
    """
    try:
        found = read(Path(path).read_bytes())
    except TrainingError:
        raise TrainingError(f"{path} is no model that was saved by training") from None
    model = Sequential(found.layers)
    settings: dict[str, Any] = found.settings
    if current_strategy():
        settings = {name: value for name, value in settings.items() if name not in _MACHINE}
    settings |= machine
    if "optimizer" not in machine:
        settings["optimizer"] = SGD(**settings["optimizer"])
    model.compile(**settings)
    model.restore(found.state, found.input_bits, epochs=found.epochs, steps=found.steps)
    return model


def _written(layer: Layer) -> dict[str, Any]:
    kind = "Activation" if isinstance(layer, Activation) else type(layer).__name__
    return {"kind": kind, **asdict(layer)}


def _read(written: Mapping[str, Any]) -> Layer:
    fields = {name: value for name, value in written.items() if name != "kind"}
    if "shape" in fields:
        fields["shape"] = tuple(fields["shape"])
    return _LAYERS[written["kind"]](**fields)
