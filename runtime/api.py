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
from systola.runtime.compile_content import compile_content
from systola.runtime.compiled_model import DEFAULT_BATCH, CompiledModel, read_compiled
from systola.runtime.make_backend import make_backend
from systola.runtime.pod.model import PodModel, compile_for_pod
from systola.runtime.pod.strategy import current_strategy

Source = bytes | str | PathLike[str]
"""The content of a file, or its path."""


def compile(
    model: Source,
    *,
    preset: str | Config | None = None,
    batch: int | None = None,
    semantics: str | None = None,
) -> CompiledModel | PodModel:
    """Compiles a quantised .tflite or .onnx model, or one that systola.training has saved, `batch`
    samples in one program.

    Operators that the machine does not take run on the host, in LiteRT or ONNX Runtime, which have
    to be installed for this; `placement` of the result has the place of each operator.
    In the scope of a Strategy the model is one for its pod, whose preset it then has.
    `preset` is DEFAULT_PRESET and `batch` DEFAULT_BATCH where they are not given, `batch` of a pod
    what suits the share of a core.
    `semantics` chooses the interpreter whose results the compiled model gives, see Semantics;
    None is the first that the format of the model has. Raises OSError where there is no such file,
    ConfigError for an unknown preset, ModelError for a model that is damaged or not supported,
    CompileError for one that does not fit the machine, ValueError for unknown semantics and for
    another preset than that of the pod.
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
    """A model that CompiledModel.save has stored; in the scope of a Strategy one for its pod.

    Raises OSError where there is no such file, ProgramFileError where it is something else,
    ModelError where it is for another machine than the pod's.
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
    """A machine that runs programs of one's own, and models that are compiled for its preset.

    `backend` is "rtl", the simulated RTL, with memories of `latency` (cycles) and `stall` (fraction
    of cycles, at random from `seed`), or "iss", the golden model. Raises ConfigError for an unknown
    preset, ValueError for an unknown back end, BackendError where the simulator cannot be built.
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
