# SPDX-License-Identifier: Apache-2.0
"""A part of a network that the interpreter of its format runs on the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from systola.compiler.operations import Value


class Interpreter(Enum):
    """The library that defines the results of a format."""

    LITERT = "ai-edge-litert"
    ONNX_RUNTIME = "onnxruntime"


@dataclass(frozen=True, kw_only=True, eq=False)
class InterpretedStage:
    """Operators of a network as a model file of their own."""

    operators: tuple[str, ...]
    """The operators, for messages and reports."""
    interpreter: Interpreter
    model: bytes
    """The content of the file, which has the inputs and outputs below in the same order."""
    sources: tuple[Value, ...]
    results: tuple[Value, ...]
    macs: int
    """Multiply-accumulates of one sample."""
