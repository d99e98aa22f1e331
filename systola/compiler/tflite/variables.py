# SPDX-License-Identifier: Apache-2.0
"""A rewrite of variables, which keep a value from one sample to the next, as inputs and outputs.

A network with variables has a second subgraph that gives the variables their first values. In the
first subgraph, VAR_HANDLE makes a handle, a tensor that stands for a variable. With a handle,
READ_VARIABLE reads the variable, and ASSIGN_VARIABLE gives it a new value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError, located
from systola.compiler.tflite.graph import Graph, Operator, Tensor

OPENING = "CALL_ONCE"
"""Kind of the operator that runs the subgraph with first values, before the first sample only."""
_Name = tuple[Any, Any]
"""Type of a variable's name: a pair of a container's name and a name within this container."""


def without_variables(graph: Graph, subgraph: Callable[[int], Graph]) -> Graph:
    """Return `graph` with its variables as additional inputs and outputs.

    The last inputs are the variables before a sample, the last outputs the variables after it.
    `subgraph` returns the file's subgraph of a given number. Raises ModelError if a first value is
    no constant, or if a variable has values of several shapes or scales.
    """
    rewriter = _Rewriter(graph, subgraph)
    for operator in graph.operators:
        with located(operator, ModelError):
            rewriter.take(operator)
    return rewriter.result()


class _Rewriter:
    def __init__(self, graph: Graph, subgraph: Callable[[int], Graph]) -> None:
        self._graph = graph
        self._subgraph = subgraph
        self._operators: list[Operator] = []
        self._first: dict[_Name, NDArray[Any]] = {}
        self._names: dict[int, _Name] = {}
        """Map from the number of a handle's tensor to the name of the variable."""
        self._before: dict[_Name, int] = {}
        """Map from a variable's name to the number of the tensor with its value before a sample.

        Variables that are never read before they are assigned are not in the map.
        """
        self._now: dict[_Name, int] = {}
        """Map from a variable's name to the number of the tensor with its present value, after the
        operators taken so far.
        """
        self._same: dict[int, int] = {}
        """Map from the tensor that a READ_VARIABLE makes to the tensor that replaces it, both by
        number. The second tensor has the variable's present value.
        """

    def take(self, operator: Operator) -> None:
        """Take the next operator of the network, in the order of execution.

        An operator on variables is noted in the maps, any other operator is kept.
        """
        inputs = tuple(self._same.get(number, number) for number in operator.inputs)
        match operator.kind:
            case "CALL_ONCE":
                if self._now:
                    raise ModelError("a variable is used before it has its first value")
                self._first.update(_first_values(self._subgraph(_number(operator))))
            case "VAR_HANDLE":
                self._names[operator.outputs[0]] = _name(operator)
            case "READ_VARIABLE":
                name = self._named(inputs[0])
                (result,) = operator.outputs
                if name in self._now:
                    _check_alike(self._graph.tensors[result], self._graph.tensors[self._now[name]])
                    self._same[result] = self._now[name]
                else:
                    self._before[name] = self._now[name] = result
            case "ASSIGN_VARIABLE":
                self._now[self._named(inputs[0])] = inputs[1]
            case _:
                self._operators.append(replace(operator, inputs=inputs))

    def result(self) -> Graph:
        """Return the network with its variables as inputs and outputs.

        A variable that is assigned before it is first read gets no input and no output. No sample
        needs the value that such a variable had after the sample before.
        """
        tensors, names = self._graph.tensors, tuple(self._before)
        for name in names:
            before, after = tensors[self._before[name]], tensors[self._now[name]]
            _check_alike(before, after)
            first = self._first[name]
            if first.shape != before.shape or first.dtype != before.dtype:
                raise ModelError(
                    f"a variable of shape {before.shape} has a first value of shape {first.shape}"
                )
        return replace(
            self._graph,
            operators=tuple(self._operators),
            inputs=(*self._graph.inputs, *(self._before[name] for name in names)),
            outputs=(
                *(self._same.get(number, number) for number in self._graph.outputs),
                *(self._now[name] for name in names),
            ),
            first_values=tuple(self._first[name] for name in names),
        )

    def _named(self, handle: int) -> _Name:
        if handle not in self._names or self._names[handle] not in self._first:
            raise ModelError("its variable has no first value")
        return self._names[handle]


def _first_values(graph: Graph) -> dict[_Name, NDArray[Any]]:
    """Return a map from a variable's name to the constant that `graph` assigns to the variable."""
    names: dict[int, _Name] = {}
    values: dict[_Name, NDArray[Any]] = {}
    for operator in graph.operators:
        if operator.kind == "VAR_HANDLE":
            names[operator.outputs[0]] = _name(operator)
            continue
        handle, source = operator.inputs[:2] if len(operator.inputs) > 1 else (-1, -1)
        data = graph.tensors[source].data if source >= 0 else None
        if operator.kind != "ASSIGN_VARIABLE" or handle not in names or data is None:
            raise ModelError("the first value of a variable is no constant")
        values[names[handle]] = data
    return values


def _number(operator: Operator) -> int:
    return int(operator.options.get("InitSubgraphIndex", 0))


def _name(operator: Operator) -> _Name:
    return operator.options.get("Container"), operator.options.get("SharedName")


def _check_alike(one: Tensor, other: Tensor) -> None:
    """Raise ModelError unless both tensors have the same type, shape, scales and zero points."""
    if (
        (one.shape, one.dtype) != (other.shape, other.dtype)
        or not np.array_equal(one.scales, other.scales)
        or not np.array_equal(one.zero_points, other.zero_points)
    ):
        raise ModelError(f"a variable has values of other shapes or scales than '{one.name}'")
