# SPDX-License-Identifier: Apache-2.0
"""A model file as a list of operators that can each run on the machine or in an interpreter.

An operator of the file is called a part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from systola.compiler.errors import ModelError
from systola.compiler.interpreted import InterpretedStage, Interpreter
from systola.compiler.network import Network
from systola.compiler.operations import Value
from systola.compiler.semantics import Semantics

Tensor = Hashable
"""Type of a tensor's key in the file: a name in .onnx files, a number in .tflite files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """An operator of a model file, called a part."""

    index: int
    """Position of the operator in the file, counted from 0."""
    name: str
    """Position and kind of the operator, as text for messages."""
    kind: str
    inputs: tuple[Tensor, ...]
    """Tensors that the operator takes, without constants of the file."""
    outputs: tuple[Tensor, ...]
    macs: int
    """Number of multiply-accumulates in one sample; 0 if shapes are not known."""
    copied: bool = False
    """True if each segment that takes the operator's results gets a copy of the operator.

    Such operators calculate constants, or convert quantised numbers to float32.
    """
    states: frozenset[Tensor] = frozenset()
    """Variables that the operator reads or writes; a variable keeps its value from sample to
    sample.
    """
    opening: bool = False
    """True if the operator sets variables before the first sample."""


class Source(ABC):
    """A model file that can be cut into parts.

    Methods raise ModelError if operators are not supported. The error's `refused` has the reasons.
    """

    semantics: Semantics
    interpreter: Interpreter
    """Interpreter that defines the results of the file."""
    parts: Sequence[Part]
    """Operators in an order of execution, which is the order of their positions."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    values: Mapping[Tensor, Value]
    """Name, type and shape of each input and calculated tensor, if its shape is known."""
    of_int16: bool = False
    """True if some tensors are of int16. Such a network runs even if the host calculates all of it.
    """

    @abstractmethod
    def refused(self) -> Mapping[str, str]:
        """Return the reason for each operator that the machine cannot run.

        The key is the operator's text in messages.
        """

    @abstractmethod
    def network(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Network:
        """Return some operators of the file as a network for the machine."""

    def interpreted(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> InterpretedStage:
        """Return some operators of the file as a stage that the interpreter runs."""
        for tensor in (*inputs, *outputs):
            if tensor not in self.values:
                name = self.tensor_name(tensor)
                raise ModelError(f"the shape of tensor '{name}' is not known before it runs")
        return InterpretedStage(
            operators=tuple(part.name for part in parts),
            interpreter=self.interpreter,
            model=self.piece(parts, inputs, outputs),
            sources=tuple(self.values[tensor] for tensor in inputs),
            results=tuple(self.values[tensor] for tensor in outputs),
            macs=sum(part.macs for part in parts),
        )

    @abstractmethod
    def piece(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> bytes:
        """Return some operators of the file as the content of a model file of their own."""

    @abstractmethod
    def tensor_name(self, tensor: Tensor) -> str:
        """Return the name of a tensor, for messages."""

    def check_given(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], types: Collection[str]
    ) -> None:
        """Raise ModelError if an input has an element type that is not among `types`.

        The error names the `parts` that take the input.
        """
        for tensor in inputs:
            value = self.values.get(tensor)
            if value is None or value.dtype not in types:
                reason = f"the machine cannot be given its input '{self.tensor_name(tensor)}'"
                takers = (part.name for part in parts if tensor in part.inputs)
                raise ModelError(reason, dict.fromkeys(takers, reason))

    @abstractmethod
    def check_interpreter(self) -> None:
        """Take the shapes of tensors from the interpreter that will run the host's operators.

        Raises ModelError if the interpreter is not installed, or refuses the file.
        """
