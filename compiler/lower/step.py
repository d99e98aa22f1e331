# SPDX-License-Identifier: Apache-2.0
"""A piece of a program: one operation on lines of the unified buffer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import Entries
from systola.compiler.lower.feature_map import FeatureMap, Lines


@dataclass(frozen=True, kw_only=True, eq=False)
class Step(ABC):
    """What a step needs before it can be emitted."""

    operator: str
    """The operator it comes from, for messages."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Lines, ...]:
        """Lines that must hold something."""

    @property
    @abstractmethod
    def writes(self) -> tuple[Lines, ...]:
        """Lines that are overwritten, those that it only needs meanwhile included."""

    @property
    def entries(self) -> tuple[Entries, ...]:
        """Parameter entries that it uses."""
        return ()

    @property
    def tables(self) -> tuple[bytes, ...]:
        """Tables that it uses."""
        return ()

    @property
    def has_loop(self) -> bool:
        """Whether its instructions are a loop."""
        return False

    @abstractmethod
    def emit(self, emitter: Emitter) -> None:
        """Emits its instructions; raises CompileError where the machine is too small."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MapStep(Step):
    """A feature map made of another one."""

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
