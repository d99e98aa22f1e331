# SPDX-License-Identifier: Apache-2.0
"""The functions for users of Python, which compile or load networks and make machines."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from systola.arch.config import DEFAULT_PRESET, Config
from systola.arch.config import preset as named_preset
from systola.compiler.read_model import read_model
from systola.compiler.semantics import Semantics
from systola.runtime.backend import Backend
from systola.runtime.compile_content import compile_content
from systola.runtime.compiled_model import DEFAULT_BATCH, CompiledModel, read_compiled
from systola.runtime.make_backend import make_backend
from systola.runtime.pod.model import PodModel, compile_for_pod
from systola.runtime.pod.strategy import current_strategy

Source = bytes | str | PathLike[str]
"""The content of a file, or the path of a file."""


def compile(
    model: Source,
    *,
    preset: str | Config | None = None,
    batch: int | None = None,
    semantics: str | None = None,
) -> CompiledModel | PodModel:
    """Compile a quantised model, `batch` samples in one program.

    `model` is a .tflite or .onnx file, or a file that systola.training has saved. Operators that
    the machine does not support run on the host, in LiteRT or ONNX Runtime. The interpreter has to
    be installed for this. `placement` of the result has the place of each operator.

    In the scope of a Strategy, the result is a model for the pod, and has the preset of the pod.
    `preset` is DEFAULT_PRESET if it is not given. `batch` is DEFAULT_BATCH if it is not given; for
    a pod, it is a number that suits the share of a core.

    `semantics` chooses the interpreter that the results of the compiled model equal, see Semantics.
    None is the first semantics of the model's format.

    Raises OSError if there is no such file, ConfigError for an unknown preset, and ModelError for a
    model that is damaged or not supported. Raises CompileError for a model that does not fit the
    machine. Raises ValueError for unknown semantics and for a preset other than the pod's.
    """
    strategy = current_strategy()
    config = configuration(preset or (strategy.config if strategy else DEFAULT_PRESET))
    if strategy and config != strategy.config:
        raise ValueError(f"the pod is of '{strategy.config.name}', not of '{config.name}'")
    chosen = None if semantics is None else _named_semantics(semantics)
    content = _content(model)
    if strategy:
        return compile_for_pod(strategy, *read_model(content, chosen), batch)
    return compile_content(config, content, chosen, DEFAULT_BATCH if batch is None else batch)


def load(program: Source) -> CompiledModel | PodModel:
    """Load a model that CompiledModel.save has stored; in the scope of a Strategy, for its pod.

    Raises OSError if there is no such file, and ProgramFileError for a file of another kind. Raises
    ModelError for a model that is compiled for a machine other than the pod's.
    """
    model = read_compiled(_content(program))
    strategy = current_strategy()
    return PodModel(strategy, model) if strategy else model


def machine(
    preset: str | Config = DEFAULT_PRESET,
    *,
    backend: str = "rtl",
    latency: int = 0,
    stall: float = 0.0,
    seed: int = 0,
) -> Backend:
    """Make a machine that runs programs of one's own, and models compiled for its preset.

    `backend` is "rtl", the simulated RTL, or "iss", the golden model. The memories of the RTL
    answer `latency` cycles late, and stall in a fraction `stall` of the cycles, at random from
    `seed`. Raises ConfigError for an unknown preset, and ValueError for an unknown back end. Raises
    BackendError if the simulator cannot be built.
    """
    config = configuration(preset)
    return make_backend(backend, config, latency=latency, stall=stall, seed=seed)


def configuration(preset: str | Config) -> Config:
    """Return the machine of a preset. Raises ConfigError for an unknown name."""
    return preset if isinstance(preset, Config) else named_preset(preset)


def _named_semantics(name: str) -> Semantics:
    known = {each.value: each for each in Semantics}
    if name not in known:
        raise ValueError(f"unknown semantics '{name}' (known: {', '.join(known)})")
    return known[name]


def _content(source: Source) -> bytes:
    return source if isinstance(source, bytes) else Path(source).read_bytes()
