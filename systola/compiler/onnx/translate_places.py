# SPDX-License-Identifier: Apache-2.0
"""The translation of ArgMax and ArgMin, the index of the largest or smallest element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import Extreme, HostStage
from systola.compiler.onnx.entries import Codes, Dequantised, HostArray
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.scope import Scope
from systola.compiler.operations import Value
from systola.compiler.places import columns_along, first_places
from systola.compiler.shape_checks import checked_axis


def translate_arg_extreme(scope: Scope, node: OnnxNode) -> None:
    """Translate ArgMax and ArgMin of codes to two pools; along axes of more than 255 elements, to
    work of the host.

    The host also does it if the machine cannot move the elements as needed.
    """
    entry = scope.entry(node, 0)
    if isinstance(entry, Dequantised) and bool((np.diff(entry.numbers) > 0).all()):
        entry = entry.codes
    if not isinstance(entry, Codes):
        raise ModelError("its input must come from a DequantizeLinear")
    if node.integer("select_last_index", 0):
        raise ModelError("the last of equal elements is not supported")
    shape = entry.shape
    axis = checked_axis(node.integer("axis", 0), len(shape))
    if axis == 0 and (shape[0] > 1 or scope.repeat > 1):
        raise ModelError("a reduction over samples is not supported")
    of_axis = (1,) if node.integer("keepdims", 1) else ()
    result = Value(node.outputs[0], (*shape[:axis], *of_axis, *shape[axis + 1 :]), "int64")
    smallest = node.kind == "ArgMin"
    columns = columns_along(shape, axis)
    source = scope.arranged(node, entry, columns.order, columns.shape)
    found = first_places(str(node), source, result, "int64", smallest=smallest)
    if found is None:
        whole = scope.arranged(node, entry, range(len(shape)), shape, to_host=True)
        function = Extreme(axis, not smallest, "int64")
        found = [HostStage(operator=str(node), sources=(whole,), result=result, function=function)]
    for item in found:
        scope.add(item)
    scope.result(node, HostArray(result))


Translator = Callable[[Scope, OnnxNode], None]
PLACES: dict[str, Translator] = dict.fromkeys(("ArgMax", "ArgMin"), translate_arg_extreme)
