# SPDX-License-Identifier: Apache-2.0
"""A stage of a network that an interpreter, such as LiteRT or ONNX Runtime, runs on the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from systola.compiler.operations import Value


class Interpreter(Enum):
    """An interpreter, which is the library that defines the right results for a file format.

    A value of the enumeration is the name of the interpreter's Python package.
    """

    LITERT = "ai-edge-litert"
    ONNX_RUNTIME = "onnxruntime"


@dataclass(frozen=True, kw_only=True, eq=False)
class InterpretedStage:
    """A stage of a network that an interpreter runs; its model file has some of the operators."""

    operators: tuple[str, ...]
    """Texts that name, in messages and reports, the network's operators that the stage calculates.
    """
    interpreter: Interpreter
    model: bytes
    """Content of the model file; its inputs and outputs are in the order of `sources` and
    `results`.
    """
    sources: tuple[Value, ...]
    results: tuple[Value, ...]
    macs: int
    """Number of multiply-accumulates of the stage in one sample."""
