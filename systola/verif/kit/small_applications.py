# SPDX-License-Identifier: Apache-2.0
"""Small networks of the kinds of applications in bench/original/."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from systola.bench.original.networks import operations_of
from systola.bench.original.shapes import Application
from systola.compiler.operations import Operations

SEED = 7


def recurrent(batch: int, inputs: int, size: int) -> Application:
    """Return a recurrent network of three cells, as in LSTM0.

    The first cell reads the input. The second cell has a residual connection.
    """
    cells = [
        {"size": size, "from": ["input"]},
        {"size": size, "from": [0], "residual": True},
        {"size": size, "from": [1]},
    ]
    return Application("recurrent", batch, {"inputs": inputs, "cells": cells}, (), SEED)


def dense(batch: int, sizes: Sequence[int]) -> Application:
    """Return a network of fully connected layers of these sizes."""
    return Application("dense", batch, {"layers": list(sizes)}, (), SEED)


def operations_in_order(application: Application) -> Operations:
    """Return the operations of an application, with outputs in the order in which programs make
    them.
    """
    operations = operations_of(application)
    made = [node.result for node in operations.nodes]
    return replace(operations, outputs=tuple(sorted(operations.outputs, key=made.index)))
