# SPDX-License-Identifier: Apache-2.0
"""Random changes to TensorFlow Lite models that leave their files well-formed."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from systola.compiler.tflite.translate import TRANSLATORS

SIZES = (0, 1, 2, 3, 5, 8, 17, 64, 255, 4096, 65537, 1 << 20, (1 << 31) - 1, -1, -(1 << 31))
NUMBERS = (-(1 << 31), -2, -1, 0, 1, 2, 3, 4, 7, 127, 128, 1000, 65536, (1 << 31) - 1)
SCALES = (
    0.0,
    -0.1,
    float("nan"),
    float("inf"),
    1e-45,
    1e-38,
    1e-20,
    1e-8,
    1e-3,
    0.5,
    1.0,
    1e6,
    1e38,
)
ZERO_POINTS = (
    -(1 << 63),
    -(1 << 31),
    -129,
    -128,
    -1,
    0,
    1,
    5,
    127,
    128,
    255,
    (1 << 31) - 1,
    1 << 40,
)
REALS = (float("nan"), float("inf"), -1.0, 0.0, 1e-38, 1e-6, 0.3, 1.0, 2.0, 6.0, 1e10, 3e38)
KINDS = sorted(TRANSLATORS)
MOST_CHANGES = 3
LONG_CHAIN = 30

Change = Callable[[Random, Any], str]
"""Type of a function that changes a schema.ModelT and describes the change."""


def mutated_tflite(rng: Random, content: bytes) -> tuple[bytes, str]:
    """Return the model after one to three random changes, and a description of the changes."""
    while True:
        model = schema.ModelT.InitFromPackedBuf(content)
        try:
            done = [rng.choice(_CHANGES)(rng, model) for _ in range(rng.randint(1, MOST_CHANGES))]
            return packed(model), "; ".join(done)
        except (AttributeError, IndexError, OverflowError, TypeError, ValueError, struct.error):
            # The model has nothing to which this change applies, or the format cannot express the
            # change: try another one.
            continue


def packed(model: Any) -> bytes:
    """Return the content of a file that holds a schema.ModelT."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _graph(model: Any) -> Any:
    return model.subgraphs[0]


def _tensor(rng: Random, model: Any) -> tuple[int, Any]:
    tensors = _graph(model).tensors
    number = rng.randrange(len(tensors))
    return number, tensors[number]


def _operator(rng: Random, model: Any) -> tuple[int, Any]:
    operators = _graph(model).operators
    number = rng.randrange(len(operators))
    return number, operators[number]


def _list(values: Any) -> list[Any]:
    return [] if values is None else [value.item() for value in np.asarray(values)]


def _reference(rng: Random, model: Any) -> int:
    count = len(_graph(model).tensors)
    if rng.random() < 0.7:
        return rng.randrange(count)
    return rng.choice((-1, -2, count, count + 1, (1 << 31) - 1))


def _changed_list(rng: Random, values: list[Any], new: Callable[[], Any]) -> list[Any]:
    """Return `values` after one value was changed, removed, inserted, doubled or swapped."""
    values = list(values)
    at = rng.randrange(len(values) + 1)
    action = rng.choice(("set", "set", "set", "remove", "insert", "double", "swap"))
    if action == "insert" or at == len(values):
        values.insert(at, new())
    elif action == "set":
        values[at] = new()
    elif action == "remove":
        del values[at]
    elif action == "double":
        values.insert(at, values[at])
    else:
        other = rng.randrange(len(values))
        values[at], values[other] = values[other], values[at]
    return values


def _shape(rng: Random, model: Any) -> str:
    number, tensor = _tensor(rng, model)
    shape = _list(tensor.shape)
    if shape and rng.random() < 0.5:
        axis = rng.randrange(len(shape))
        nearby = (shape[axis] - 1, shape[axis] + 1, shape[axis] * 2, shape[axis] // 2)
        shape[axis] = rng.choice((*nearby, rng.choice(SIZES)))
    else:
        shape = _changed_list(rng, shape, lambda: rng.choice(SIZES))
    tensor.shape = shape
    return f"shape of tensor {number}: {shape}"


def _every_shape(rng: Random, model: Any) -> str:
    """Change a size in many shapes alike, so that the shapes still fit each other."""
    tensors = [tensor for tensor in _graph(model).tensors if len(_list(tensor.shape)) > 1]
    if not tensors:
        return _shape(rng, model)
    if rng.random() < 0.5:
        size = rng.choice((0, 2, 3, 7, 1000, (1 << 31) - 1))
        for tensor in tensors:
            if not model.buffers[tensor.buffer].data is not None:
                tensor.shape = [size, *_list(tensor.shape)[1:]]
        return f"all first dimensions: {size}"
    old = rng.choice(_list(rng.choice(tensors).shape))
    new = rng.choice((old + 1, *SIZES))
    for tensor in tensors:
        tensor.shape = [new if size == old else size for size in _list(tensor.shape)]
    return f"all dimensions {old}: {new}"


def _type(rng: Random, model: Any) -> str:
    number, tensor = _tensor(rng, model)
    tensor.type = rng.choice((0, 1, 2, 3, 4, 6, 7, 8, 9, 9, 17, 18, 100))
    return f"type of tensor {number}: {tensor.type}"


def _quantisation(rng: Random, model: Any) -> str:
    number, tensor = _tensor(rng, model)
    if tensor.quantization is None:
        tensor.quantization = schema.QuantizationParametersT()
    parameters = tensor.quantization
    action = rng.choice(
        ("scale", "scale", "near", "scales", "zero", "zero", "zeros", "axis", "none")
    )
    scales, zeros = _list(parameters.scale), _list(parameters.zeroPoint)
    if action == "none":
        tensor.quantization = None
        return f"no quantisation of tensor {number}"
    if action == "axis":
        parameters.quantizedDimension = rng.choice(NUMBERS)
        return f"axis of tensor {number}: {parameters.quantizedDimension}"
    if action == "scale":
        at = rng.randrange(len(scales) or 1)
        scales[at : at + 1] = [rng.choice(SCALES)]
    elif action == "near":
        at = rng.randrange(len(scales) or 1)
        scales[at : at + 1] = [(scales or [0.1])[min(at, len(scales) - 1)] * rng.uniform(0.2, 5)]
    elif action == "scales":
        scales = _changed_list(rng, scales, lambda: rng.choice(SCALES))
    elif action == "zero":
        at = rng.randrange(len(zeros) or 1)
        zeros[at : at + 1] = [rng.choice(ZERO_POINTS)]
    else:
        zeros = _changed_list(rng, zeros, lambda: rng.choice(ZERO_POINTS))
    with np.errstate(over="ignore"):
        parameters.scale = np.array(scales, np.float32)
    parameters.zeroPoint = np.array(zeros, np.int64)
    return f"scales {scales[:3]} and zero points {zeros[:3]} of tensor {number}"


def _same_quantisation(rng: Random, model: Any) -> str:
    """Give a tensor a copy of another tensor's quantisation, which is well-formed."""
    number, tensor = _tensor(rng, model)
    other, source = _tensor(rng, model)
    tensor.quantization = copy.deepcopy(source.quantization)
    return f"quantisation of tensor {number} is that of {other}"


def _reference_to_buffer(rng: Random, model: Any) -> str:
    number, tensor = _tensor(rng, model)
    count = len(model.buffers)
    tensor.buffer = rng.choice((0, count, (1 << 32) - 1, *(rng.randrange(count) for _ in range(5))))
    return f"buffer of tensor {number}: {tensor.buffer}"


def _buffer_size(rng: Random, model: Any) -> str:
    number = rng.randrange(len(model.buffers))
    buffer = model.buffers[number]
    data = b"" if buffer.data is None else bytes(buffer.data)
    data = rng.choice((data[:-1], data[1:], data + b"\0", data * 2, data[: len(data) // 2], b""))
    buffer.data = np.frombuffer(data, np.uint8)
    return f"size of buffer {number}: {len(data)}"


def _constants(rng: Random, model: Any) -> str:
    """Change an element of an int32 constant: an axis, a padding, a shape or a bias."""
    tensors = [
        (number, tensor)
        for number, tensor in enumerate(_graph(model).tensors)
        if tensor.type == schema.TensorType.INT32 and tensor.buffer < len(model.buffers)
    ]
    filled = [each for each in tensors if _whole_words(model.buffers[each[1].buffer].data)]
    if not filled:
        return _options(rng, model)
    number, tensor = rng.choice(filled)
    buffer = model.buffers[tensor.buffer]
    values = np.frombuffer(bytes(buffer.data), "<i4").copy()
    at = rng.randrange(len(values))
    values[at] = rng.choice(
        (*NUMBERS, *(int(values[at]) + step for step in (-1, 1) if -1000 < values[at] < 1000))
    )
    buffer.data = np.frombuffer(values.tobytes(), np.uint8)
    return f"constant tensor {number}[{at}]: {values[at]}"


def _whole_words(data: Any) -> bool:
    return data is not None and len(data) > 0 and len(data) % 4 == 0


def _operands(rng: Random, model: Any) -> str:
    number, operator = _operator(rng, model)
    name = rng.choice(("inputs", "inputs", "outputs", "intermediates"))
    values = _list(getattr(operator, name))
    setattr(operator, name, _changed_list(rng, values, lambda: _reference(rng, model)))
    return f"{name} of operator {number}: {getattr(operator, name)}"


def _cycle(rng: Random, model: Any) -> str:
    """Let an operator take its own result or another operator's, or let two operators write one
    tensor.
    """
    number, operator = _operator(rng, model)
    other, source = _operator(rng, model)
    inputs, outputs = _list(operator.inputs), _list(operator.outputs)
    results = _list(source.outputs)
    if not inputs or not outputs or not results:
        return _operands(rng, model)
    if rng.random() < 0.6:
        inputs[rng.randrange(min(2, len(inputs)))] = results[0]
        operator.inputs = inputs
        return f"operator {number} takes the result of {other}"
    outputs[0] = results[0]
    operator.outputs = outputs
    return f"operators {number} and {other} have one result"


def _ends(rng: Random, model: Any) -> str:
    graph = _graph(model)
    name = rng.choice(("inputs", "outputs"))
    values = _list(getattr(graph, name))
    setattr(graph, name, _changed_list(rng, values, lambda: _reference(rng, model)))
    return f"{name} of the model: {getattr(graph, name)}"


def _input_as_output(rng: Random, model: Any) -> str:
    graph = _graph(model)
    graph.outputs = rng.choice((_list(graph.inputs), _list(graph.outputs) + _list(graph.inputs)))
    return f"outputs of the model, inputs among them: {graph.outputs}"


def _kind(rng: Random, model: Any) -> str:
    """Change the kind of an operator, but leave the options of its old kind."""
    code = rng.choice(model.operatorCodes)
    if rng.random() < 0.7:
        code.builtinCode = getattr(schema.BuiltinOperator, rng.choice(KINDS))
    else:
        code.builtinCode = rng.choice((rng.randrange(210), 32, 127, -1, (1 << 31) - 1))
    code.deprecatedBuiltinCode = rng.choice((max(min(code.builtinCode, 127), -128), 127, 0))
    return f"an operator code: {code.builtinCode} ({code.deprecatedBuiltinCode})"


def _kind_of_one(rng: Random, model: Any) -> str:
    number, operator = _operator(rng, model)
    count = len(model.operatorCodes)
    operator.opcodeIndex = rng.choice((rng.randrange(count), rng.randrange(count), count, 1 << 31))
    return f"code of operator {number}: {operator.opcodeIndex}"


def _options(rng: Random, model: Any) -> str:
    number, operator = _operator(rng, model)
    options = operator.builtinOptions
    if options is None or not vars(options) or rng.random() < 0.05:
        operator.builtinOptions, operator.builtinOptionsType = None, rng.randrange(130)
        return f"no options of operator {number}"
    name = rng.choice(sorted(vars(options)))
    old = getattr(options, name)
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, float):
        new = rng.choice(REALS)
    elif isinstance(old, int):
        new = rng.choice((old + 1, old - 1, *NUMBERS))
    else:
        new = _changed_list(rng, _list(old), lambda: rng.choice(NUMBERS))
    setattr(options, name, new)
    return f"{name} of operator {number}: {new}"


def _flags(rng: Random, model: Any) -> str:
    number, tensor = _tensor(rng, model)
    action = rng.choice(("variable", "signature", "name", "sparsity"))
    if action == "variable":
        tensor.isVariable = not tensor.isVariable
    elif action == "signature":
        tensor.shapeSignature = [-1, *_list(tensor.shape)[1:]]
    elif action == "name":
        tensor.name = rng.choice((None, b"", b"\xff\n\r\0x", b"n" * 10000, b"two\nlines"))
    else:
        tensor.sparsity = schema.SparsityParametersT()
    return f"{action} of tensor {number}"


def _order(rng: Random, model: Any) -> str:
    """Reverse the order of the operators, swap two of them, or leave one out or double it."""
    graph = _graph(model)
    action = rng.choice(("reversed", "swapped", "left out", "twice"))
    at, other = (rng.randrange(len(graph.operators)) for _ in range(2))
    operators = list(graph.operators)
    if action == "reversed":
        operators.reverse()
    elif action == "swapped":
        operators[at], operators[other] = operators[other], operators[at]
    elif action == "left out":
        del operators[at]
    else:
        operators.insert(other, operators[at])
    graph.operators = operators
    return f"operators {at} and {other} {action}"


def _chain(rng: Random, model: Any) -> str:
    """Append a chain of copies of an operator, a few or many, to the model's output."""
    graph = _graph(model)
    number, operator = _operator(rng, model)
    if not _list(operator.inputs) or not _list(operator.outputs):
        return _operands(rng, model)
    length = rng.choice((2, 3, LONG_CHAIN))
    chain = []
    last = _list(operator.outputs)[0]
    if not 0 <= last < len(graph.tensors):
        return _operands(rng, model)
    for _ in range(length):
        link = copy.copy(operator)
        link.inputs = [last, *_list(operator.inputs)[1:]]
        graph.tensors.append(copy.copy(graph.tensors[last]))
        last = len(graph.tensors) - 1
        link.outputs = [last]
        chain.append(link)
    graph.operators = [*graph.operators, *chain]
    graph.outputs = [last]
    return f"{length} more of operator {number}"


def _subgraphs(rng: Random, model: Any) -> str:
    count = rng.choice((0, 2))
    model.subgraphs = model.subgraphs[:1] * count
    return f"{count} subgraphs"


_CHANGES: tuple[Change, ...] = (
    *(_shape,) * 3,
    *(_every_shape,) * 3,
    _type,
    *(_quantisation,) * 4,
    *(_same_quantisation,) * 2,
    _reference_to_buffer,
    _buffer_size,
    *(_constants,) * 4,
    *(_operands,) * 3,
    *(_cycle,) * 2,
    _ends,
    _input_as_output,
    *(_kind,) * 2,
    *(_kind_of_one,) * 2,
    *(_options,) * 5,
    _flags,
    *(_order,) * 2,
    _chain,
    _subgraphs,
)
