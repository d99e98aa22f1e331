# SPDX-License-Identifier: Apache-2.0
"""Compiles the content of a model file, with an interpreter for parts that the machine does not
run.

A network that the machine does not take as a whole is cut into pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from systola.arch.config import Config
from systola.compiler.cut.partial import PartialNetwork, cut_network, place_whole
from systola.compiler.errors import CompileError, ModelError, Refusal
from systola.compiler.network import Network
from systola.compiler.read_model import read_model, read_source
from systola.compiler.semantics import Semantics
from systola.runtime.compiled_model import CompiledModel, compile_model


@dataclass(frozen=True)
class ReadModel:
    """A model file that has been read for a machine."""

    config: Config
    content: bytes
    network: Network | PartialNetwork
    semantics: Semantics

    def compile(self, batch: int) -> CompiledModel:
        """Compile `batch` samples in one program; raise CompileError if it does not fit."""
        if isinstance(self.network, PartialNetwork):
            return compile_model(self.config, self.network, self.semantics, batch)
        try:
            model = compile_model(self.config, self.network, self.semantics, batch)
        except CompileError as error:
            partial = _cut(self.config, self.content, self.semantics, error)
            return compile_model(self.config, partial, self.semantics, batch)
        source = read_source(self.content, self.semantics)
        return replace(model, placement=place_whole(source, self.network)) if source else model


def read_for(config: Config, content: bytes, semantics: Semantics | None) -> ReadModel:
    """Read the content of a model file; `semantics` is as read_model takes it.

    A network that the machine does not take as a whole is cut. If no part of it can run on the
    machine, raises ModelError with the reason why the whole was refused.
    """
    try:
        network, chosen = read_model(content, semantics)
    except ModelError as error:
        partial = _cut(config, content, semantics, error)
        return ReadModel(config, content, partial, partial.source.semantics)
    return ReadModel(config, content, network, chosen)


def compile_content(
    config: Config, content: bytes, semantics: Semantics | None, batch: int
) -> CompiledModel:
    """Compile the content of a model file, see read_for and ReadModel.compile."""
    return read_for(config, content, semantics).compile(batch)


def _cut(
    config: Config, content: bytes, semantics: Semantics | None, error: Refusal
) -> PartialNetwork:
    """Cut a network that the machine does not take as a whole; raise `error`, the reason, if no cut
    helps.
    """
    try:
        source = read_source(content, semantics)
    except ModelError:
        source = None
    if source is None:
        raise error
    try:
        partial = cut_network(config, source)
    except ModelError as other:
        raise ModelError(f"{error}; {other}", error.refused) from None
    if partial is None:
        raise error
    return partial
