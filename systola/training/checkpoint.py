# SPDX-License-Identifier: Apache-2.0
"""Saves a model to a file, and loads it: layers, settings, and every byte that was learnt.

The file is an archive as numpy.savez makes it. It has a description in JSON, the masters, and the
velocities or moments. As with a program file, nothing in the archive is believed before it has been
checked.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config, ConfigError
from systola.arch.config import preset as named_preset
from systola.runtime.npz import Npz, NpzError
from systola.runtime.plain_data import DataError, Packer, Unpacker
from systola.runtime.pod.strategy import current_strategy
from systola.runtime.write_file import write_file
from systola.training.arguments import takes
from systola.training.building import stages
from systola.training.checks import shown, whole
from systola.training.errors import TrainingError
from systola.training.layers import Activation, Input, Layer
from systola.training.model import Sequential
from systola.training.moments import Moments, Scales
from systola.training.numbers import velocity_bits
from systola.training.optimizers import Optimizer
from systola.training.paths import check_path
from systola.training.settings import MOST_BATCH, Settings
from systola.training.stages import Stage
from systola.training.state import State, check_bits, master_shapes

VERSION = 5
"""Version of the file format, which is raised when a stored class gets other fields, and when a
stored array gets another meaning."""
_FORMAT = "systola training"
"""Name of the file format, which stands before the version."""
_MACHINE = ("preset", "backend", "latency", "cores")
"""Names of the settings of compile() that choose the machine."""
_STATISTICS = "statistics"
"""Name of a kind of arrays: the moving means and variances of each BatchNormalization, which are
float32.
"""
_KINDS = ("master", "velocity", "moment", "root", _STATISTICS)
"""Kinds of arrays in a file. The name of an array is its kind, followed by the number of its
tensor, such as master0."""
_ABOUT = "about"
"""Name of the array that holds the description of the model as one text."""
_MOST_ABOUT = 1 << 20
"""Largest size of the description of a model, in bytes."""
_MOST_HEADER = 1 << 12
"""Largest size of the header of an array, in bytes."""
_MOST_COUNT = (1 << 31) - 1
"""Largest number of epochs, steps and updates that a file may have."""
_NOT_ONE = "it is no model that was saved by training"


class Saved(Protocol):
    """The parts of a model that a file keeps."""

    layers: list[Layer]
    settings: dict[str, Any] | None
    epochs: int
    steps: int
    batch_size: int | None

    @property
    def input_bits(self) -> int | None:
        """Fraction bits of the samples; None before the first samples."""
        ...

    def state(self) -> State:
        """Return the learnt numbers and their fraction bits."""
        ...


def save(model: Saved, path: str | PathLike[str]) -> None:
    """Save a model that has been compiled.

    Raises TrainingError for a model that has not been compiled, and OSError if the file cannot be
    written.
    """
    if model.settings is None:
        raise TrainingError("call compile() before save()")
    state, settings = model.state(), dict(model.settings)
    about = {
        "format": f"{_FORMAT} {VERSION}",
        "layers": [_written(layer) for layer in model.layers],
        "settings": settings
        | {"optimizer": Packer().pack(settings["optimizer"]), "preset": settings["preset"].name},
        "bits": state.bits,
        "unit_bits": state.unit_bits,
        "scales": Packer().pack(state.moments.scales) if state.moments else (),
        "updates": state.moments.updates if state.moments else 0,
        "input_bits": model.input_bits,
        "epochs": model.epochs,
        "steps": model.steps,
        "batch_size": model.batch_size,
    }
    moments = state.moments
    kinds = {
        "master": state.masters,
        "velocity": state.velocities,
        "moment": moments.first if moments else (),
        "root": moments.roots if moments else (),
        "statistics": state.statistics,
    }
    arrays: dict[str, Any] = {
        f"{kind}{n}": values for kind, all_ in kinds.items() for n, values in enumerate(all_)
    }
    content = io.BytesIO()
    np.savez_compressed(content, about=np.array(json.dumps(about)), **arrays)
    write_file(path, content.getvalue())


@dataclass(frozen=True)
class Checkpoint:
    """A model as read from a file: layers, settings, and the learnt numbers."""

    layers: list[Layer]
    settings: Settings
    state: State
    input_bits: int | None
    epochs: int
    steps: int
    batch_size: int | None
    """Batch size of the last fit(); None before the first fit()."""


@dataclass(frozen=True)
class _About:
    """The description of a model in its file, without the name of the format."""

    layers: tuple[Layer, ...]
    settings: Settings
    bits: tuple[int, ...]
    unit_bits: tuple[int, ...]
    scales: tuple[Scales, ...]
    """Scales of the moments of each tensor; empty before the first update."""
    updates: int
    """Number of updates that have gone into the moments."""
    input_bits: int | None
    epochs: int
    steps: int
    batch_size: int | None

    def __post_init__(self) -> None:
        whole("epochs", self.epochs, 0, _MOST_COUNT)
        whole("steps", self.steps, 0, _MOST_COUNT)
        whole("updates", self.updates, 0, _MOST_COUNT)
        if self.batch_size is not None:
            whole("batch_size", self.batch_size, 1, MOST_BATCH)
        if not (self.layers and isinstance(self.layers[0], Input)):
            raise TrainingError("its first layer is no Input")
        found = stages(self.layers, None)
        check_bits(found, self.bits, self.unit_bits, self.input_bits)
        if len(self.scales) != (len(self.bits) if self.updates else 0):
            raise TrainingError(f"scales has {len(self.scales)} items")
        for each in self.scales:
            each.check()


def read(content: bytes) -> Checkpoint:
    """Read the content of a file that `save` has written.

    Every field and array is checked against the network before the arrays are unpacked. Raises
    TrainingError if a check fails. The message begins with "it", which stands for the file.
    """
    try:
        archive = Npz(content)
        if _ABOUT not in archive.names:
            raise TrainingError(_NOT_ONE)
    except NpzError:
        raise TrainingError(_NOT_ONE) from None
    try:
        about = _about(archive)
        found = stages(about.layers, None)
        arrays = _arrays(archive, found, about.settings.optimizer)
    except (NpzError, DataError) as error:
        raise TrainingError(f"it is damaged: {error}") from None
    return Checkpoint(
        layers=list(about.layers),
        settings=about.settings,
        state=_state(about, arrays),
        input_bits=about.input_bits,
        epochs=about.epochs,
        steps=about.steps,
        batch_size=about.batch_size,
    )


def _about(archive: Npz) -> _About:
    """Read the description of a model from its array.

    Raises NpzError or DataError if the array holds no description. Raises TrainingError for a
    description of another version.
    """
    if archive.stored_bytes(_ABOUT) > _MOST_ABOUT:
        raise DataError("its description is too long")
    text = archive.read(_ABOUT)
    if text.dtype.kind != "U" or text.shape:
        raise DataError("its description is no text")
    try:
        data = json.loads(str(text))
    except (ValueError, RecursionError):
        raise DataError("its description is no JSON") from None
    about = _fields(data, "its description")
    written = about.pop("format", None)
    version = re.fullmatch(rf"{_FORMAT} (\d{{1,9}})", written) if isinstance(written, str) else None
    if version is None:
        raise DataError("its format has another name")
    if int(version[1]) != VERSION:
        raise TrainingError(
            f"it is of version {version[1]} of this kind of file, this is for version {VERSION}"
        )
    # Module plain_data reads an object from a dict, which has the name of the object's class under
    # "class".
    settings = _fields(about.get("settings"), "settings")
    about["settings"] = {"class": Settings.__name__, **settings}
    if isinstance(about.get("layers"), list):
        about["layers"] = [_layer(each) for each in about["layers"]]
    return Unpacker((), ()).unpack(_About, {"class": _About.__name__, **about})


def _fields(data: object, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise DataError(f"{where} is no object")
    return cast("dict[str, Any]", data)


def _layer(written: Any) -> Any:
    """Rename the field `kind` of a layer to `class`, the field in which module plain_data expects
    the name of a class.
    """
    fields = _fields(written, "a layer")
    if "class" in fields:
        raise DataError("a layer has a class")
    return {"class" if name == "kind" else name: value for name, value in fields.items()}


def _state(about: _About, arrays: Mapping[str, tuple[NDArray[Any], ...]]) -> State:
    """Return the State that a file holds: masters, and velocities or moments."""
    optimizer = about.settings.optimizer
    velocities, roots = arrays["velocity"], arrays["root"]
    more = velocity_bits(optimizer.momentum) if velocities else 0
    state = State(arrays["master"], velocities, about.bits, about.unit_bits, more)
    state = replace(state, statistics=arrays[_STATISTICS])
    if not (optimizer.decays and roots):
        return state
    kept = arrays["moment"], roots, about.scales, about.updates
    return replace(state, moments=Moments(*kept, optimizer.decays))


def _arrays(
    archive: Npz, found: Sequence[Stage], optimizer: Optimizer
) -> dict[str, tuple[NDArray[Any], ...]]:
    """Return the arrays of a file by their kind, such as masters or velocities.

    A file may leave velocities and moments out. Raises DataError if an array is missing, is one too
    many, or does not fit the tensors of these stages.
    """
    shapes = {kind: master_shapes(found) for kind in _KINDS}
    shapes[_STATISTICS] = [(2, stage.units) for stage in found if stage.normalized]
    kinds = {kind: [f"{kind}{n}" for n in range(len(shapes[kind]))] for kind in _KINDS}
    names = set(archive.names) - {_ABOUT}
    decays = optimizer.decays
    kept = ("root", *(("moment",) if decays.first else ())) if decays else ("velocity",)
    always = ("master", _STATISTICS)
    if names == {name for kind in always for name in kinds[kind]}:
        kept = ()
    kinds = {kind: each if kind in (*always, *kept) else [] for kind, each in kinds.items()}
    wanted = {name for kind in kinds.values() for name in kind}
    for name in sorted(wanted ^ names):
        raise DataError(f"array {shown(name)} {'is missing' if name in wanted else 'is too many'}")
    return {
        kind: tuple(
            _array(archive, name, shape, np.float32 if kind == _STATISTICS else np.int16)
            for name, shape in zip(each, shapes[kind], strict=False)
        )
        for kind, each in kinds.items()
    }


def _array(
    archive: Npz, name: str, shape: tuple[int, int], kind: type[np.int16] | type[np.float32]
) -> NDArray[Any]:
    size = shape[0] * shape[1] * np.dtype(kind).itemsize
    if archive.stored_bytes(name) > size + _MOST_HEADER:
        raise DataError(f"{name} has not the shape {shape}")
    try:
        values = archive.read(name)
    except NpzError as error:
        raise DataError(f"{name}: {error}") from None
    if values.dtype != kind:
        raise DataError(f"{name} is {values.dtype}, not {np.dtype(kind)}")
    if not np.isfinite(values).all():
        raise DataError(f"{name} has NaN or infinite numbers")
    if values.shape != shape:
        raise DataError(f"{name} has the shape {values.shape}, not {shape}")
    return values


@takes()
def load(
    path: str | PathLike[str],
    *,
    optimizer: str | Optimizer | None = None,
    loss: str | None = None,
    metrics: Sequence[str] | str | None = None,
    seed: int | None = None,
    preset: str | Config | None = None,
    backend: str | None = None,
    latency: int | None = None,
    cores: int | None = None,
    check_every: int = 0,
) -> Sequential:
    """Load the model that `save` has stored in a file.

    The other arguments are as for compile(). An argument that is given replaces a setting of the
    file. A setting of the machine that is not given comes from the Strategy in scope at the call,
    else from the file. Raises OSError if there is no such file, and TrainingError if the file holds
    something else.
    """
    try:
        found = read(check_path(path).read_bytes())
    except TrainingError as error:
        raise TrainingError(f"{path}: {error}") from None
    settings: dict[str, Any] = dict(vars(found.settings))
    if current_strategy():
        settings = {name: value for name, value in settings.items() if name not in _MACHINE}
    given = {
        **{"optimizer": optimizer, "loss": loss, "metrics": metrics, "seed": seed},
        **{"preset": preset, "backend": backend, "latency": latency, "cores": cores},
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    if "preset" in settings and preset is None:
        settings["preset"] = _stored_preset(path, settings["preset"])
    model = Sequential(found.layers)
    model.compile(**settings, check_every=check_every)
    model.restore(found.state, found.input_bits, epochs=found.epochs, steps=found.steps)
    model.batch_size = found.batch_size
    return model


def _stored_preset(path: str | PathLike[str], name: str) -> Config:
    try:
        return named_preset(name)
    except ConfigError:
        raise TrainingError(
            f"{path}: it was trained on {shown(name)}, which is no preset: give another to load()"
        ) from None


def _written(layer: Layer) -> dict[str, Any]:
    kind = "Activation" if isinstance(layer, Activation) else type(layer).__name__
    return {"kind": kind, **asdict(layer)}
