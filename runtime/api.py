# SPDX-License-Identifier: Apache-2.0
"""For users of Python: networks are compiled or loaded, and machines run them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from systola.arch.config import DEFAULT_PRESET, Config
from systola.arch.config import preset as named_preset
from systola.compiler.read_model import read_model
from systola.compiler.semantics import Semantics
from systola.runtime.backend import Backend
from systola.runtime.compiled_model import (
    DEFAULT_BATCH,
    CompiledModel,
    compile_model,
    read_compiled,
)
from systola.runtime.make_backend import make_backend

Source = bytes | str | PathLike[str]
"""The content of a file, or its path."""


def compile(
    model: Source,
    *,
    preset: str | Config = DEFAULT_PRESET,
    batch: int = DEFAULT_BATCH,
    semantics: str | None = None,
) -> CompiledModel:
    """Compiles a quantised .tflite or .onnx model, `batch` samples in one program.

    `semantics` chooses the interpreter whose results the compiled model gives, see Semantics;
    None is the first that the format of the model has. Raises OSError where there is no such file,
    ConfigError for an unknown preset, ModelError for a model that is damaged or not supported,
    CompileError for one that does not fit the machine, ValueError for unknown semantics.
    """
    config = _configuration(preset)
    chosen = None if semantics is None else _named_semantics(semantics)
    network, chosen = read_model(_content(model), chosen)
    return compile_model(config, network, chosen, batch)


def load(program: Source) -> CompiledModel:
    """A model that CompiledModel.save has stored.

    Raises OSError where there is no such file, ProgramFileError where it is something else.
    """
    return read_compiled(_content(program))


def machine(
    preset: str | Config = DEFAULT_PRESET,
    *,
    backend: str = "rtl",
    latency: int = 0,
    stall: float = 0.0,
    seed: int = 0,
) -> Backend:
    """A machine that runs programs of one's own, and models that are compiled for its preset.

    `backend` is "rtl", the simulated RTL, with memories of `latency` (cycles) and `stall` (fraction
    of cycles, at random from `seed`), or "iss", the golden model. Raises ConfigError for an unknown
    preset, ValueError for an unknown back end, BackendError where the simulator cannot be built.
    """
    config = _configuration(preset)
    return make_backend(backend, config, latency=latency, stall=stall, seed=seed)


def _configuration(preset: str | Config) -> Config:
    return preset if isinstance(preset, Config) else named_preset(preset)


def _named_semantics(name: str) -> Semantics:
    known = {each.value: each for each in Semantics}
    if name not in known:
        raise ValueError(f"unknown semantics '{name}' (known: {', '.join(known)})")
    return known[name]


def _content(source: Source) -> bytes:
    return source if isinstance(source, bytes) else Path(source).read_bytes()
