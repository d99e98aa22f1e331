# SPDX-License-Identifier: Apache-2.0
"""A part of a network that the interpreter of its file format runs on the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from systola.compiler.operations import Value


class Interpreter(Enum):
    """An interpreter, which is the library that defines the right results for a file format.

    The values of the enumeration are names of Python packages.
    """

    LITERT = "ai-edge-litert"
    ONNX_RUNTIME = "onnxruntime"


@dataclass(frozen=True, kw_only=True, eq=False)
class InterpretedStage:
    """A stage of a network that an interpreter runs: some operators as their own model file."""

    operators: tuple[str, ...]
    """Texts of the network's operators that the stage calculates, for messages and reports."""
    interpreter: Interpreter
    model: bytes
    """Content of the model file; its inputs and outputs are in the order of `sources` and
    `results`.
    """
    sources: tuple[Value, ...]
    results: tuple[Value, ...]
    macs: int
    """Number of multiply-accumulates of the stage in one sample."""
