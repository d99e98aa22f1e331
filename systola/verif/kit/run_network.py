# SPDX-License-Identifier: Apache-2.0
"""A function that compiles a network and runs it on a machine, from samples to outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from systola.compiler.network import Network
from systola.compiler.semantics import Semantics
from systola.runtime.backend import Backend
from systola.runtime.compiled_model import DEFAULT_BATCH, compile_model
from systola.runtime.run_result import RunResult
from systola.runtime.samples import sample_count


def run_network(
    backend: Backend,
    network: Network,
    *x: NDArray[Any],
    batch: int = DEFAULT_BATCH,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Compile `network` for `backend`, and run it with at most `batch` samples in a program.

    See CompiledModel.run for the other arguments. Raises CompileError for a network that does not
    fit.
    """
    samples = sample_count(network.inputs, [each.shape for each in x])
    model = compile_model(backend.config, network, Semantics.LITERT_2, min(batch, samples or 1))
    return model.run(*x, backend=backend, progress=progress)
