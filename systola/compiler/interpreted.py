# SPDX-License-Identifier: Apache-2.0
"""A part of a network that the interpreter of its file format runs on the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from systola.compiler.operations import Value


class Interpreter(Enum):
    """The libraries that define the results of the file formats."""

    LITERT = "ai-edge-litert"
    ONNX_RUNTIME = "onnxruntime"


@dataclass(frozen=True, kw_only=True, eq=False)
class InterpretedStage:
    """A stage of a network: some of its operators as a model file of their own."""

    operators: tuple[str, ...]
    """Operators of the network, for messages and reports."""
    interpreter: Interpreter
    model: bytes
    """Content of the file, with the inputs `sources` and the outputs `results` in the same order.
    """
    sources: tuple[Value, ...]
    results: tuple[Value, ...]
    macs: int
    """Multiply-accumulates of one sample."""
