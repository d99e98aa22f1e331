# SPDX-License-Identifier: Apache-2.0
"""A piece of a program: one operation on lines of the unified buffer."""

from __future__ import annotations

from dataclasses import dataclass

from systola.compiler.emitter import Emitter
from systola.compiler.entries import Entries
from systola.compiler.feature_map import Lines


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """What a step needs before it can be emitted."""

    operator: str
    """The operator it comes from, for messages."""

    @property
    def reads(self) -> tuple[Lines, ...]:
        """Lines that must hold something."""
        raise NotImplementedError

    @property
    def writes(self) -> tuple[Lines, ...]:
        """Lines that are overwritten, those that it only needs meanwhile included."""
        raise NotImplementedError

    @property
    def entries(self) -> tuple[Entries, ...]:
        """Parameter entries that it uses."""
        return ()

    @property
    def tables(self) -> tuple[bytes, ...]:
        """Tables that it uses."""
        return ()

    def emit(self, emitter: Emitter) -> None:
        """Emits its instructions; raises CompileError where the machine is too small."""
        raise NotImplementedError
