# SPDX-License-Identifier: Apache-2.0
"""Float networks in ONNX, quantised by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import external_data_helper, helper, numpy_helper, version_converter

from systola.compiler.errors import ModelError
from systola.compiler.operations import Value
from systola.runtime.quantiser.float_model import (
    COMPARED,
    Sample,
    known_shape,
    shapes_in_order,
)
from systola.runtime.quantiser.libraries import library, refusals
from systola.runtime.quantiser.masks import Step, masks

_QUANTISER = "onnxruntime.quantization"
_OPSET = 13
"""The first version of the operators in which DequantizeLinear has a scale for each channel."""
_IR_VERSION = 8
_ERRORS_ONLY = 3
"""Level of ONNX Runtime's log that shows errors and no warnings."""
_FATAL_ONLY = 4
_REFUSED = "ONNX Runtime cannot quantise it"


class OnnxModel:
    """A float network in ONNX, a FloatModel."""

    def __init__(self, content: bytes, shapes: Sequence[Sequence[int]] | None) -> None:
        """Read the file `content`, with `shapes` for its inputs, or None to keep the file's shapes.

        Raises ModelError if the file is damaged, is quantised already, or has open sizes.
        """
        library(_QUANTISER)
        # The quantiser makes sessions of its own, with this logger.
        library("onnxruntime").set_default_logger_severity(_ERRORS_ONLY)
        with refusals("the model is damaged"):
            model = onnx.load_from_string(content)
        _check_float(model)
        with refusals(_REFUSED):
            _widen(model.graph)
            model = _upgraded(model)
            # The quantiser adds constants that are not among the inputs. Files before version 4 do
            # not allow this.
            model.ir_version = max(model.ir_version, _IR_VERSION)
            self.inputs = _fix_sizes(model, shapes)
            prepared = onnx.load_from_string(_prepared(model))
            _flatten_biases(prepared.graph)
            self._content = prepared.SerializeToString()
        self._kinds = {name: each.op_type for each in prepared.graph.node for name in each.output}

    def quantise(self, samples: Sequence[Sample]) -> bytes:
        """Quantise in the form QDQ, with a scale for each channel of weights; see FloatModel."""
        quantiser = library(_QUANTISER)
        with refusals(_REFUSED), TemporaryDirectory() as folder:
            source, result = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
            source.write_bytes(_without_masks(self._content))
            quantiser.quantize_static(
                source,
                result,
                _reader(samples),
                activation_type=quantiser.QuantType.QInt8,
                weight_type=quantiser.QuantType.QInt8,
                per_channel=True,
                # Without this option a pooling or a view that comes first stays float.
                extra_options={"ForceQuantizeNoInputCheck": True},
            )
            return result.read_bytes()

    def run(self, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        """Run the float network, see FloatModel."""
        return self.run_quantised(self._content, samples)

    def run_quantised(self, content: bytes, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        """Run the quantised network, see FloatModel."""
        runtime = library("onnxruntime")
        with refusals("ONNX Runtime cannot run it"):
            options = runtime.SessionOptions()
            options.log_severity_level = _ERRORS_ONLY
            providers = ["CPUExecutionProvider"]
            exact = runtime.SessionOptions()
            exact.log_severity_level = _FATAL_ONLY
            # Without this entry sums saturate at 16 bits on processors that lack VNNI. With it,
            # ONNX Runtime 1.31 fails where two operators take the same codes.
            exact.add_session_config_entry("session.x64quantprecision", "1")
            try:
                session = runtime.InferenceSession(content, exact, providers)
            except Exception:
                session = runtime.InferenceSession(content, options, providers)
            results = [session.run(None, dict(sample)) for sample in samples]
        return [_joined(each) for each in zip(*results, strict=True)]

    def signal_to_noise(self, content: bytes, samples: Sequence[Sample]) -> dict[str, float]:
        """Compare layers, which are named by their operator and its result; see FloatModel."""
        debug = library(f"{_QUANTISER}.qdq_loss_debug")
        activations: list[Any] = []
        with refusals("ONNX Runtime cannot compare the layers"), TemporaryDirectory() as folder:
            for number, each in enumerate((content, self._content)):
                path, with_results = Path(folder, f"{number}.onnx"), Path(folder, f"{number}r.onnx")
                path.write_bytes(each)
                debug.modify_model_output_intermediate_tensors(path, with_results)
                reader = _reader(samples[:COMPARED])
                activations.append(debug.collect_activations(str(with_results), reader))
            pairs: dict[str, Any] = debug.create_activation_matching(*activations)
            layers = {
                f"{self._kinds[name]} {name}": pair
                for name, pair in pairs.items()
                if name in self._kinds and "float" in pair
            }
            errors: dict[str, Any] = debug.compute_activation_error(layers)
        return {name: float(each["xmodel_err"]) for name, each in errors.items()}


def _joined(results: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return one array of the results of an output, with the samples along the first axis.

    Raises ModelError for results that cannot be compared.
    """
    shapes = sorted({np.shape(each) for each in results})
    if len(shapes) > 1:
        raise ModelError(
            f"the shape of an output follows from the values: it is {shapes[0]} and {shapes[1]}"
        )
    joined = np.array(results)
    if joined.dtype.kind not in "biuf":
        raise ModelError(f"an output has elements of type {joined.dtype}, which are no numbers")
    return joined


def _without_masks(content: bytes) -> bytes:
    """Return the model with constants in its masks that are less far below 0.

    With the original constants nearly all scores beside a mask would get the same int8 code.
    """
    model = onnx.load_from_string(content)
    tensors = {each.name: each for each in model.graph.initializer}
    steps: list[Step] = []
    for node in model.graph.node:
        steps.append(Step(node.op_type, [*node.input], [*node.output]))
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            tensors[node.output[0]] = node.attribute[0].t
    found = masks(steps, tensors, lambda name: numpy_helper.to_array(tensors[str(name)]))
    for name, values in found.items():
        tensor = tensors[str(name)]
        tensor.CopyFrom(numpy_helper.from_array(values.reshape(tensor.dims), tensor.name))
    return model.SerializeToString() if found else content


def _check_float(model: onnx.ModelProto) -> None:
    """Raise ModelError for a model that is quantised already, or lies in several files."""
    for node in model.graph.node:
        if "Quantize" in node.op_type or "QLinear" in node.op_type or "Integer" in node.op_type:
            raise ModelError(f"the model is quantised already: it has {node.op_type}")
    for tensor in model.graph.initializer:
        if external_data_helper.uses_external_data(tensor):
            raise ModelError(f"the weights '{tensor.name}' are in another file: save it as one")


def _widen(graph: onnx.GraphProto) -> None:
    """Turn all float16 into float32, in a graph and in the graphs inside it."""
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == half:
            info.type.tensor_type.elem_type = single
    tensors = [*graph.initializer]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == half:
                attribute.i = single
            tensors += [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                _widen(inner)
    for tensor in tensors:
        if tensor.data_type == half:
            numbers = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))


def _upgraded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with operators of version _OPSET at least."""
    versions = {each.domain: each.version for each in model.opset_import}
    if versions.get("", versions.get("ai.onnx", _OPSET)) >= _OPSET:
        return model
    return version_converter.convert_version(model, _OPSET)


def _fix_sizes(model: onnx.ModelProto, shapes: Sequence[Sequence[int]] | None) -> tuple[Value, ...]:
    """Give the inputs of `model` their sizes; return the inputs."""
    tools = library("onnxruntime.tools.onnx_model_utils")
    constants = {each.name for each in model.graph.initializer}
    inputs = {each.name: each for each in model.graph.input if each.name not in constants}
    values: list[Value] = []
    for name, given in shapes_in_order(list(inputs), shapes):
        kind = inputs[name].type.tensor_type
        stored = [each.dim_value if each.dim_value > 0 else None for each in kind.shape.dim]
        shape = known_shape(name, stored, given)
        tools.make_input_shape_fixed(model.graph, name, shape)
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        values.append(Value(name, shape, np.dtype(dtype).name))
    tools.fix_output_shapes(model)
    return tuple(values)


def _prepared(model: onnx.ModelProto) -> bytes:
    """Return the file of `model` with the optimisations that the quantiser asks for."""
    prepare = library(f"{_QUANTISER}.shape_inference")
    with TemporaryDirectory() as folder:
        source, result = Path(folder, "float.onnx"), Path(folder, "prepared.onnx")
        source.write_bytes(model.SerializeToString())
        # The symbolic inference takes SymPy; with known sizes nothing is symbolic.
        prepare.quant_pre_process(source, result, skip_symbolic_shape=True)
        return result.read_bytes()


def _flatten_biases(graph: onnx.GraphProto) -> None:
    """Remove the first axis of biases of shape 1xN, for which the quantiser has one scale a row."""
    names = {node.input[2] for node in graph.node if node.op_type == "Gemm" and len(node.input) > 2}
    others = {
        name
        for node in graph.node
        for number, name in enumerate(node.input)
        if node.op_type != "Gemm" or number != 2
    }
    for tensor in graph.initializer:
        if tensor.name in names - others and len(tensor.dims) == 2 and tensor.dims[0] == 1:
            del tensor.dims[0]
            for info in (*graph.input, *graph.value_info):
                if info.name == tensor.name:
                    del info.type.tensor_type.shape.dim[0]


def _reader(samples: Sequence[Sample]) -> Any:
    """Return a CalibrationDataReader of ONNX Runtime that gives `samples`."""

    class Reader(library(_QUANTISER).CalibrationDataReader):
        def __init__(self) -> None:
            self._rest: Iterator[Sample] = iter(samples)

        def get_next(self) -> Sample | None:
            return next(self._rest, None)

    return Reader()
