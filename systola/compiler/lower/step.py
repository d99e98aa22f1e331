# SPDX-License-Identifier: Apache-2.0
"""A piece of a program: the instructions of one operation, on lines of the unified buffer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import Entries
from systola.compiler.lower.feature_map import FeatureMap, Lines


@dataclass(frozen=True, kw_only=True, eq=False)
class Step(ABC):
    """A piece of a program that can name the lines and entries it needs before it is emitted."""

    operator: str
    """Name of the operator that the step belongs to, for error messages."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Lines, ...]:
        """Buffer lines that the step reads: constants, and results of earlier steps."""

    @property
    @abstractmethod
    def writes(self) -> tuple[Lines, ...]:
        """Buffer lines that the step overwrites, including lines that it needs only while
        it runs.
        """

    @property
    def entries(self) -> tuple[Entries, ...]:
        """Parameter entries that the step uses."""
        return ()

    @property
    def tables(self) -> tuple[bytes, ...]:
        """Contents of the lookup tables that the step uses."""
        return ()

    @property
    def has_loop(self) -> bool:
        """True if the instructions of the step contain a loop."""
        return False

    @abstractmethod
    def emit(self, emitter: Emitter) -> None:
        """Emit the instructions of the step; raises CompileError if the machine is too small."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MapStep(Step):
    """A step that makes one feature map from another feature map."""

    source: FeatureMap
    target: FeatureMap
    output_entries: Entries

    @property
    def reads(self) -> tuple[Lines, ...]:
        return (self.source.lines,)

    @property
    def writes(self) -> tuple[Lines, ...]:
        return (self.target.lines,)

    @property
    def entries(self) -> tuple[Entries, ...]:
        return (self.output_entries,)
