# SPDX-License-Identifier: Apache-2.0
"""A model file as a list of operators that can each run on the machine or in an interpreter.

An operator of the file is called a part. A variable is a value that is kept from sample to sample.
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
"""Type of the key that identifies a tensor of the file: a name in .onnx files, a number in .tflite
files.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """An operator of a model file, called a part."""

    index: int
    """Position of the operator in the file, counted from 0."""
    name: str
    """Text of the operator for messages: its position and kind, such as "node 3 (Conv)"."""
    kind: str
    inputs: tuple[Tensor, ...]
    """Tensors that the operator takes, except constants that the file contains."""
    outputs: tuple[Tensor, ...]
    macs: int
    """Number of the operator's multiply-accumulates in one sample; 0 if shapes are not known."""
    copied: bool = False
    """True if each segment that takes the operator's results gets its own copy of the operator.

    Such an operator calculates constants, or converts quantised numbers to float32.
    """
    states: frozenset[Tensor] = frozenset()
    """Keys of the variables that the operator reads or writes."""
    opening: bool = False
    """True if the operator sets variables before the first sample."""


class Source(ABC):
    """A model file that can be cut into parts.

    Methods raise ModelError if operators are not supported. The error's `refused` has the reason
    for each of these operators.
    """

    semantics: Semantics
    interpreter: Interpreter
    """Interpreter with results that the machine's results must equal."""
    parts: Sequence[Part]
    """Operators in the order of the file, which is an order in which they can be executed."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    values: Mapping[Tensor, Value]
    """Name, type and shape of inputs and calculated tensors. The key is the tensor's key; tensors
    of unknown shape have no entry.
    """
    of_int16: bool = False
    """True if some tensors are of int16. Such a network runs even if all its operators are on the
    host; without int16 it is refused in this case.
    """

    @abstractmethod
    def refused(self) -> Mapping[str, str]:
        """Return the operators that the machine cannot run.

        The key is an operator's text, such as "node 3 (Conv)", and the value is the reason.
        """

    @abstractmethod
    def network(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Network:
        """Return a network for the machine that calculates `outputs` from `inputs` with operators
        `parts`.
        """

    def interpreted(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> InterpretedStage:
        """Return a stage in which the interpreter calculates `outputs` from `inputs` with operators
        `parts`.
        """
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
        """Return the content of a model file that calculates `outputs` from `inputs` with operators
        `parts`.
        """

    @abstractmethod
    def tensor_name(self, tensor: Tensor) -> str:
        """Return the name of the tensor with key `tensor`, for messages."""

    def check_given(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], types: Collection[str]
    ) -> None:
        """Raise ModelError if an input has an element type that is unknown or not among `types`.

        The error's `refused` names the operators among `parts` that take the input.
        """
        for tensor in inputs:
            value = self.values.get(tensor)
            if value is None or value.dtype not in types:
                reason = f"the machine cannot be given its input '{self.tensor_name(tensor)}'"
                takers = (part.name for part in parts if tensor in part.inputs)
                raise ModelError(reason, dict.fromkeys(takers, reason))

    @abstractmethod
    def check_interpreter(self) -> None:
        """Update `parts` and `values` with the shapes that the interpreter finds for tensors.

        Raises ModelError if the interpreter is not installed, or refuses the file.
        """
