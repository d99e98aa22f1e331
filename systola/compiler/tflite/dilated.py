# SPDX-License-Identifier: Apache-2.0
"""A rewrite of groups of three operators as one dilated convolution.

The group is SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND. Converters write some dilated
convolutions in this form, above all convolutions along one axis.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.tflite.graph import Graph, Operator, Tensor

EXPLICIT = "EXPLICIT"
"""Value of the option Padding in convolutions that this rewrite makes. Their options FirstH and
FirstW are the row and column of the source at which the first window begins. Row and column are
counted from 0, and are negative in the padding.
"""
_VIEWS = ("RESHAPE", "EXPAND_DIMS", "SQUEEZE")
_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def dilated_convolutions(graph: Graph) -> Graph:
    """Return `graph` with one dilated convolution in place of each group of three operators.

    Groups that equal no dilated convolution stay as they are.
    """
    return _Rewriter(graph).graph()


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors = list(graph.tensors)
        self._replaced: dict[int, list[Operator]] = {}
        """Operators that replace a group. The key is the position in the model, counted from 0, of
        the group's last operator.
        """
        self._users: dict[int, list[Operator]] = {}
        for operator in graph.operators:
            for number in set(operator.inputs):
                self._users.setdefault(number, []).append(operator)
        for operator in graph.operators:
            if operator.kind == "SPACE_TO_BATCH_ND":
                self._find(operator)

    def graph(self) -> Graph:
        operators: list[Operator] = []
        for operator in self._graph.operators:
            operators += self._replaced.get(operator.index, [operator])
        return replace(self._graph, tensors=tuple(self._tensors), operators=tuple(operators))

    def _next(self, operator: Operator, kinds: tuple[str, ...]) -> Operator | None:
        """Return the operator that takes the result of `operator` as first input.

        Returns None if no operator or several operators take the result, or if the result is an
        output of the graph. Returns None, too, if the operator's kind is not in `kinds`.
        """
        if len(operator.outputs) != 1 or operator.outputs[0] in self._graph.outputs:
            return None
        users = self._users.get(operator.outputs[0], [])
        if len(users) != 1 or users[0].kind not in kinds:
            return None
        return users[0] if users[0].inputs[0] == operator.outputs[0] else None

    def _find(self, first: Operator) -> None:
        convolution = self._next(first, (*_CONVOLUTIONS, *_VIEWS))
        if convolution and convolution.kind in _VIEWS:
            convolution = self._next(convolution, _CONVOLUTIONS)
        last = convolution and self._next(convolution, ("BATCH_TO_SPACE_ND", *_VIEWS))
        if last and last.kind in _VIEWS:
            last = self._next(last, ("BATCH_TO_SPACE_ND",))
        if convolution is None or last is None:
            return
        plan = self._plan(first, convolution, last)
        if plan is None:
            return
        sizes, outs, options = plan
        source, done = self._tensors[first.inputs[0]], self._tensors[convolution.outputs[0]]
        taken = self._view(first.inputs[0], (1, *sizes, source.shape[-1]))
        made = self._view(last.outputs[0], (1, *outs, done.shape[3]), done)
        one = replace(
            convolution,
            inputs=(taken, *convolution.inputs[1:]),
            outputs=(made,),
            options={**convolution.options, **options},
        )
        self._replaced[last.index] = [
            self._reshape(first, first.inputs[0], taken),
            one,
            self._reshape(last, made, last.outputs[0]),
        ]

    def _reshape(self, operator: Operator, source: int, result: int) -> Operator:
        shape = self._tensors[result].shape
        return Operator(operator.index, "RESHAPE", (source,), (result,), {"NewShape": shape})

    def _plan(
        self, first: Operator, convolution: Operator, last: Operator
    ) -> tuple[list[int], list[int], dict[str, Any]] | None:
        """Return (source size, result size, options) of the convolution that replaces a group.

        A size is a list of height and width. Along each axis the group pads the source and deals
        the pixels out to `block` maps: every block-th pixel goes to the same map. So `block`
        becomes the dilation. Returns None if the group equals no dilated convolution.
        """
        tensors = self._tensors
        source, result = tensors[first.inputs[0]].shape, tensors[last.outputs[0]].shape
        spread = tensors[convolution.inputs[0]].shape
        done = tensors[convolution.outputs[0]].shape
        weights = tensors[convolution.inputs[1]].shape
        blocks, padding = self._constant(first, 1), self._constant(first, 2)
        others, crops = self._constant(last, 1), self._constant(last, 2)
        if blocks is None or padding is None or others is None or crops is None:
            return None
        axes = _axes(source, spread, blocks.size)
        if axes is None or {len(spread), len(done), len(weights)} != {4}:
            return None
        if not np.array_equal(blocks, others) or len(result) != len(source):
            return None
        if {padding.shape, crops.shape} != {(len(axes), 2)} or (source[0], result[0]) != (1, 1):
            return None
        same = convolution.options.get("Padding") == "SAME"
        sizes: list[int] = []
        outs: list[int] = []
        options: dict[str, Any] = {"Padding": EXPLICIT}
        for axis, letter in enumerate("HW"):
            if convolution.options.get(f"Stride{letter}", 1) != 1:
                return None
            if convolution.options.get(f"Dilation{letter}Factor", 1) != 1:
                return None
            block, pads, cut = 1, (0, 0), (0, 0)
            size = spread[1 + axis]
            if axis in axes:
                number = axes.index(axis)
                block = int(blocks.reshape(-1)[number])
                pads, cut = padding[number].tolist(), crops[number].tolist()
                size = source[1 + number]
            kernel = weights[1 + axis]
            count = spread[1 + axis] - (0 if same else kernel - 1)
            if size + sum(pads) != block * spread[1 + axis] or done[1 + axis] != count:
                return None
            sizes.append(size)
            outs.append(block * count - sum(cut))
            inner = (kernel - 1) // 2 if same else 0
            options[f"First{letter}"] = cut[0] - pads[0] - inner * block
            options[f"Dilation{letter}Factor"] = block
        if any(outs[axis] != result[1 + number] for number, axis in enumerate(axes)):
            return None
        if np.prod(outs) * done[3] != np.prod(result):
            return None
        return sizes, outs, options

    def _constant(self, operator: Operator, position: int) -> NDArray[Any] | None:
        if len(operator.inputs) <= position or operator.inputs[position] < 0:
            return None
        tensor = self._tensors[operator.inputs[position]]
        return tensor.data if tensor.dtype == "int32" else None

    def _view(self, number: int, shape: tuple[int, ...], like: Tensor | None = None) -> int:
        """Add a copy of tensor `number` with another shape, and return the number of the copy.

        If `like` is given, type and scales are taken from this tensor.
        """
        tensor = self._tensors[number]
        self._tensors.append(replace(like or tensor, name=tensor.name, shape=shape, data=None))
        return len(self._tensors) - 1


def _axes(source: tuple[int, ...], spread: tuple[int, ...], blocks: int) -> tuple[int, ...] | None:
    """Return the axes along which SPACE_TO_BATCH_ND cuts, 0 for height and 1 for width.

    `source` and `spread` are the shapes of the operator's input and of the convolution's input, and
    `blocks` is the number of block sizes. Returns None if no convolution can follow with these
    shapes.
    """
    if len(spread) != 4 or source[-1:] != spread[-1:]:
        return None
    if len(source) == 4 and blocks in (1, 2):
        return (0, 1)[:blocks]
    if len(source) == 3 and blocks == 1 and 1 in spread[1:3]:
        return (1,) if spread[1] == 1 else (0,)
    return None
