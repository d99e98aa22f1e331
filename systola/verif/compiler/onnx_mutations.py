# SPDX-License-Identifier: Apache-2.0
"""Random changes to ONNX models that leave their files well-formed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from systola.compiler.onnx.translate import TRANSLATORS
from systola.verif.compiler.tflite_mutations import NUMBERS, SCALES, SIZES

KINDS = sorted(TRANSLATORS)
NAMES = ("", "nothing", "two\nlines", "n" * 10000)
MOST_CHANGES = 3
LONG_CHAIN = 30

Change = Callable[[Random, Any], str]
"""Type of a function that changes an onnx.ModelProto and describes the change."""


def mutated_onnx(rng: Random, content: bytes) -> tuple[bytes, str]:
    """Return the model after one to three random changes, and a description of the changes."""
    while True:
        model = onnx.ModelProto.FromString(content)
        try:
            done = [rng.choice(_CHANGES)(rng, model) for _ in range(rng.randint(1, MOST_CHANGES))]
            return model.SerializeToString(), "; ".join(done)
        except (AttributeError, IndexError, OverflowError, TypeError, ValueError):
            # The model has no place for this change, or the format cannot express it: try another
            # change.
            continue


def _name(rng: Random, model: Any) -> str:
    """Return the name of a random tensor, or sometimes a name that no tensor has."""
    graph = model.graph
    if rng.random() < 0.1:
        return rng.choice(NAMES)
    names = [each.name for each in (*graph.initializer, *graph.input)]
    return rng.choice([*names, *(name for node in graph.node for name in node.output)])


def _set(repeated: Any, values: list[Any]) -> None:
    """Replace all values of `repeated`, a repeated field of a protobuf message."""
    del repeated[:]
    repeated.extend(values)


def _changed(rng: Random, values: list[Any], new: Callable[[], Any]) -> list[Any]:
    """Return `values` after one value was changed, removed, inserted or doubled."""
    at = rng.randrange(len(values) + 1)
    action = rng.choice(("set", "set", "set", "remove", "insert", "double"))
    if action == "insert" or at == len(values):
        return [*values[:at], new(), *values[at:]]
    middle = {"set": [new()], "remove": [], "double": [values[at]] * 2}[action]
    return [*values[:at], *middle, *values[at + 1 :]]


def _node(rng: Random, model: Any) -> tuple[int, Any]:
    number = rng.randrange(len(model.graph.node))
    return number, model.graph.node[number]


def _references(rng: Random, model: Any) -> str:
    number, node = _node(rng, model)
    field = rng.choice(("input", "input", "input", "output"))
    values = _changed(rng, list(getattr(node, field)), lambda: _name(rng, model))
    _set(getattr(node, field), values)
    return f"{field} of node {number}: {[value[:30] for value in values]}"


def _later(rng: Random, model: Any) -> str:
    """Let a node take its own result or another node's, or let two nodes make the same result."""
    number, node = _node(rng, model)
    other, source = _node(rng, model)
    if rng.random() < 0.6:
        node.input[rng.randrange(len(node.input))] = source.output[0]
        return f"node {number} takes the result of {other}"
    node.output[0] = source.output[0]
    return f"nodes {number} and {other} have one result"


def _kind(rng: Random, model: Any) -> str:
    number, node = _node(rng, model)
    old = node.op_type
    node.op_type = rng.choice((*KINDS, "Loop", "Einsum", ""))
    if rng.random() < 0.2:
        node.domain = rng.choice(("", "com.microsoft", "elsewhere"))
    return f"node {number} was {old}: {node.op_type} of '{node.domain}'"


def _attribute(rng: Random, model: Any) -> str:
    nodes = [(number, node) for number, node in enumerate(model.graph.node) if node.attribute]
    number, node = rng.choice(nodes)
    attribute = rng.choice(list(node.attribute))
    action = rng.random()
    if action < 0.1:
        node.attribute.remove(attribute)
        return f"no {attribute.name} of node {number}"
    if action < 0.2:
        attribute.type = rng.randrange(15)
        return f"type of {attribute.name} of node {number}: {attribute.type}"
    match attribute.type:
        case onnx.AttributeProto.INT:
            attribute.i = rng.choice((attribute.i + 1, attribute.i - 1, *NUMBERS, 1 << 40))
        case onnx.AttributeProto.FLOAT:
            attribute.f = rng.choice(SCALES)
        case onnx.AttributeProto.INTS:
            values = _changed(rng, list(attribute.ints), lambda: rng.choice((*NUMBERS, 1 << 40)))
            _set(attribute.ints, values)
        case onnx.AttributeProto.STRING:
            attribute.s = rng.choice((b"", b"SAME_UPPER", b"SAME_LOWER", b"VALID", b"\xff\n"))
        case _:
            node.attribute.remove(attribute)
    return f"{attribute.name} of node {number}: {onnx.helper.printable_attribute(attribute)[:60]}"


def _constant(rng: Random, model: Any) -> tuple[Any, np.ndarray[Any, Any]]:
    tensor = rng.choice(list(model.graph.initializer))
    return tensor, numpy_helper.to_array(tensor).copy()


def _values(rng: Random, model: Any) -> str:
    """Change an element of a small constant: a scale, a zero point, an axis, a shape or another."""
    small = [each for each in model.graph.initializer if np.prod(list(each.dims)) <= 64]
    tensor = rng.choice(small)
    array = numpy_helper.to_array(tensor).copy()
    at = rng.randrange(array.size)
    if array.dtype.kind == "f":
        near = float(array.flat[at]) * rng.uniform(0.2, 5)
        with np.errstate(over="ignore"):
            array.flat[at] = rng.choice((near, near, rng.choice(SCALES)))
    else:
        limits = np.iinfo(array.dtype)
        numbers = (int(array.flat[at]) + rng.choice((-1, 1)), rng.choice(NUMBERS), 1 << 40)
        array.flat[at] = max(limits.min, min(limits.max, rng.choice(numbers)))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return f"constant {tensor.name}[{at}]: {array.flat[at]}"


def _dtype(rng: Random, model: Any) -> str:
    tensor, array = _constant(rng, model)
    dtype = rng.choice(("int8", "uint8", "int32", "int64", "float32", "float64", "float16", "bool"))
    with np.errstate(invalid="ignore", over="ignore"):
        tensor.CopyFrom(numpy_helper.from_array(array.astype(dtype), tensor.name))
    return f"type of {tensor.name}: {dtype}"


def _dimensions(rng: Random, model: Any) -> str:
    """Give a constant another shape, which may not fit the number of its elements."""
    tensor, array = _constant(rng, model)
    action = rng.choice(("flat", "more", "transposed", "lie", "lie"))
    if action == "lie":
        _set(tensor.dims, _changed(rng, list(tensor.dims), lambda: rng.choice((*SIZES, 1 << 62))))
        return f"dimensions of {tensor.name}: {list(tensor.dims)}"
    shaped = {"flat": array.reshape(-1), "more": array[np.newaxis], "transposed": array.T}[action]
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(shaped), tensor.name))
    return f"dimensions of {tensor.name}: {list(tensor.dims)}"


def _raw(rng: Random, model: Any) -> str:
    tensor = rng.choice(list(model.graph.initializer))
    data = tensor.raw_data
    tensor.raw_data = rng.choice((data[:-1], data + b"\0", data * 2, b"", data[: len(data) // 2]))
    return f"data of {tensor.name}: {len(tensor.raw_data)} bytes"


def _type_of_end(rng: Random, model: Any) -> str:
    """Change the shape or the type of an input, an output or another value of the model."""
    value = rng.choice([*model.graph.input, *model.graph.output, *model.graph.value_info])
    tensor = value.type.tensor_type
    if rng.random() < 0.2:
        tensor.elem_type = rng.randrange(20)
        return f"type of {value.name}: {tensor.elem_type}"
    dimensions = list(tensor.shape.dim)
    if not dimensions or rng.random() < 0.2:
        tensor.shape.dim.add().dim_value = rng.choice(SIZES)
        return f"{value.name} has one dimension more"
    dimension = rng.choice(dimensions)
    if rng.random() < 0.2:
        dimension.dim_param = "many"
    else:
        old = dimension.dim_value
        dimension.dim_value = rng.choice((old - 1, old + 1, 2 * old, *SIZES, 1 << 40))
    return f"dimensions of {value.name}: {[each.dim_value for each in dimensions]}"


def _ends(rng: Random, model: Any) -> str:
    """Rename, remove or double an input or an output of the model."""
    graph = model.graph
    field = rng.choice(("input", "output"))
    ends = getattr(graph, field)
    action = rng.choice(("name", "name", "remove", "double"))
    end = rng.choice(list(ends))
    if action == "name":
        end.name = _name(rng, model)
    elif action == "remove":
        ends.remove(end)
    else:
        ends.add().CopyFrom(end)
    return f"{field}s: {[each.name[:30] for each in ends]}"


def _order(rng: Random, model: Any) -> str:
    """Reverse the order of the nodes, swap two nodes, or leave a node out or double it."""
    nodes = list(model.graph.node)
    action = rng.choice(("reversed", "swapped", "left out", "twice"))
    at, other = rng.randrange(len(nodes)), rng.randrange(len(nodes))
    if action == "reversed":
        nodes.reverse()
    elif action == "swapped":
        nodes[at], nodes[other] = nodes[other], nodes[at]
    elif action == "left out":
        del nodes[at]
    else:
        nodes.insert(other, nodes[at])
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    _set(model.graph.node, copies)
    return f"nodes {at} and {other} {action}"


def _bypass(rng: Random, model: Any) -> str:
    """Bypass a node: the nodes that take its result take its input instead."""
    number, node = _node(rng, model)
    old, new = node.output[0], rng.choice(list(node.input))
    for other in model.graph.node:
        for at, name in enumerate(other.input):
            if name == old:
                other.input[at] = new
    return f"node {number} is passed by"


def _chain(rng: Random, model: Any) -> str:
    """Append a chain of copies of a node, one or many, to the model's output."""
    graph = model.graph
    number, node = _node(rng, model)
    length = rng.choice((1, 2, LONG_CHAIN))
    last = graph.output[0].name
    for link in range(length):
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        copy.input[0], copy.output[0] = last, f"link {link}"
        last = copy.output[0]
        graph.node.append(copy)
    graph.output[0].name = last
    return f"{length} more of node {number}"


def _versions(rng: Random, model: Any) -> str:
    if rng.random() < 0.3:
        model.ir_version = rng.choice((0, 3, 7, 100, 1 << 40))
        return f"version of the format: {model.ir_version}"
    entry = rng.choice(list(model.opset_import))
    entry.version = rng.choice((0, 1, 9, 10, 11, 13, 18, 21, 100, 1 << 40))
    return f"version of '{entry.domain}': {entry.version}"


_CHANGES: tuple[Change, ...] = (
    *(_references,) * 4,
    *(_later,) * 2,
    *(_kind,) * 3,
    *(_attribute,) * 4,
    *(_values,) * 6,
    *(_dtype,) * 2,
    *(_dimensions,) * 2,
    _raw,
    *(_type_of_end,) * 3,
    _ends,
    *(_order,) * 2,
    *(_bypass,) * 2,
    _chain,
    _versions,
)
