# SPDX-License-Identifier: Apache-2.0
"""An application as one program for a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.bench.original.networks import operations_of
from systola.bench.original.shapes import Application
from systola.compiler.errors import CompileError
from systola.compiler.network import DeviceStage, compile_network, make_network
from systola.compiler.operations import Node, Operations, Value, node_macs
from systola.compiler.partition import Translation
from systola.compiler.program import Program


@dataclass(frozen=True, eq=False)
class Work:
    """An application, compiled for its batch, with inputs."""

    application: Application
    operations: Operations
    program: Program
    image: Image

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole batch, without padding of any kind."""
        return self.application.batch * self.operations.macs


def beginning(operations: Operations, share: float) -> Operations:
    """Return the first operations, with up to `share` of all multiply-accumulates.

    The outputs are the values that none of these operations reads.
    """
    nodes: list[Node] = []
    macs = 0
    for node in operations.nodes:
        nodes.append(node)
        macs += node_macs(node)
        if macs >= share * operations.macs:
            break
    taken = {source for node in nodes for source in node.sources}
    return Operations(
        tuple(value for value in operations.inputs if value in taken),
        tuple(
            node.result
            for node in nodes
            if node.result not in taken or node.result in operations.outputs
        ),
        tuple(nodes),
    )


def compiled(
    config: Config, application: Application, operations: Operations | None = None
) -> Work:
    """Compile `application`, or some `operations` of it, to a program for `config`.

    Its inputs are random from its seed. Raises CompileError if the result is not one program.
    """
    operations = operations or operations_of(application)
    translation = Translation(operations.inputs, operations.outputs, operations.nodes, 1, 0)
    network = compile_network(config, make_network(translation), application.batch)
    if len(network.stages) != 1 or not isinstance(network.stages[0], DeviceStage):
        raise CompileError(f"{application.title} is not one program on '{config.name}'")
    program = network.stages[0].program
    inputs = random_inputs(application, network.stages[0].sources)
    return Work(application, operations, program, program.bind(*inputs))


def random_inputs(application: Application, values: Sequence[Value]) -> list[NDArray[np.int8]]:
    """Return random int8 inputs for `values`, for the whole batch, by the application's seed."""
    rng = np.random.default_rng(application.seed)
    return [
        rng.normal(0.0, 45.0, (application.batch, *value.shape)).clip(-128, 127).astype(np.int8)
        for value in values
    ]
