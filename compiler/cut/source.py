# SPDX-License-Identifier: Apache-2.0
"""A model file as operators that can go to the machine or to an interpreter."""

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
"""The name of a tensor in the file, or its number, by the format."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """An operator of a model file."""

    index: int
    """Position in the file, counted from 0."""
    name: str
    """Position and kind, as messages have them."""
    kind: str
    inputs: tuple[Tensor, ...]
    """Without constants of the file."""
    outputs: tuple[Tensor, ...]
    macs: int
    """Multiply-accumulates of one sample, 0 where shapes are not known."""
    copied: bool = False
    """Whether each piece of the network that takes its results has its own copy: constants that
    are calculated, and conversions of codes to numbers."""
    states: frozenset[Tensor] = frozenset()
    """Variables that it reads or writes, which keep their values from sample to sample."""
    opening: bool = False
    """Whether it sets variables before the first sample."""


class Source(ABC):
    """A model file. Methods raise ModelError, with `refused`, for operators not supported."""

    semantics: Semantics
    interpreter: Interpreter
    """The interpreter that defines the results of the file."""
    parts: Sequence[Part]
    """In an order in which they can be executed, position by position."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    values: Mapping[Tensor, Value]
    """Tensors that are given or calculated, and have a known shape."""

    @abstractmethod
    def refused(self) -> Mapping[str, str]:
        """Return the reason for each operator that the machine refuses, by its text."""

    @abstractmethod
    def network(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Network:
        """Return some of the parts as a network for the machine."""

    def interpreted(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> InterpretedStage:
        """Return some of the parts as a model for the interpreter."""
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
        """Return some of the parts as a model file."""

    @abstractmethod
    def tensor_name(self, tensor: Tensor) -> str:
        """Return the name of a tensor, for messages."""

    def check_given(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], types: Collection[str]
    ) -> None:
        """Raise ModelError where an input of these parts is of none of these types."""
        for tensor in inputs:
            value = self.values.get(tensor)
            if value is None or value.dtype not in types:
                reason = f"the machine cannot be given its input '{self.tensor_name(tensor)}'"
                takers = (part.name for part in parts if tensor in part.inputs)
                raise ModelError(reason, dict.fromkeys(takers, reason))

    @abstractmethod
    def check_interpreter(self) -> None:
        """Take shapes from the interpreter, which is to run the operators of the host.

        Raises ModelError where it is not installed, or refuses the file.
        """
