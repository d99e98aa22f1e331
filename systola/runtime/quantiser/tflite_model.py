# SPDX-License-Identifier: Apache-2.0
"""Float networks in TensorFlow Lite's format, quantised by ai-edge-quantizer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import log10
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.interpreted import Interpreter
from systola.compiler.operations import Value
from systola.compiler.tflite.graph import Graph
from systola.compiler.tflite.reader import read_tflite
from systola.runtime.interpreters import Session
from systola.runtime.quantiser.float_model import (
    COMPARED,
    Sample,
    known_shape,
    shapes_in_order,
)
from systola.runtime.quantiser.libraries import library, refusals
from systola.runtime.quantiser.masks import Step, masks
from systola.runtime.quantiser.modern_tflite import (
    BODY,
    SCHEMA,
    modern,
    packed,
    replace_constant,
    unpacked,
    widen,
)

_QUANTISER = "ai_edge_quantizer"
_INTERPRETER = "ai_edge_litert.interpreter"
_REFUSED = "ai-edge-quantizer cannot quantise it"
_FAST = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
_EXACT = "BUILTIN_REF"
"""Names of LiteRT's two sets of kernels in its OpResolverType."""
_SIGNATURE = "serving_default"
"""Name of the signature that a model without a signature gets; converters use the same name."""
_NO_SIGNAL = 1e-30
"""Least ratio of signal to noise, -300 dB; it also stands for a layer without a signal."""


class TfliteModel:
    """A float network in TensorFlow Lite's format, a FloatModel."""

    def __init__(
        self, content: bytes, shapes: Sequence[Sequence[int]] | None, *, wide: bool = False
    ) -> None:
        """Read the file `content`, with `shapes` for its inputs, or None to keep the file's shapes.

        With `wide`, activations become int16 in place of int8.

        Raises ModelError if the file is damaged, is quantised already, or has open sizes.
        """
        library(_QUANTISER)
        self._wide = wide
        _check_float(read_tflite(content, main=True))
        content = modern(content)
        self._graph = read_tflite(content, main=True)
        self._inner = len(unpacked(content).subgraphs) > 1
        with refusals("LiteRT cannot run it"):
            interpreter = _interpreter(content, _FAST)
            details = interpreter.get_input_details()
            inputs = {each["name"]: each for each in details}
            if len(inputs) != len(details):
                raise ModelError("two of its inputs have the same name")
            values: list[Value] = []
            for name, given in shapes_in_order(list(inputs), shapes):
                stored = [None if size < 0 else int(size) for size in _sizes(inputs[name])]
                shape = known_shape(name, stored, given)
                values.append(Value(name, shape, np.dtype(inputs[name]["dtype"]).name))
                interpreter.resize_tensor_input(inputs[name]["index"], shape)
            self.inputs = tuple(values)
            interpreter.allocate_tensors()
            # Sizes that depend on values are known only after a run.
            for each, value in zip(details, values, strict=True):
                interpreter.set_tensor(each["index"], np.zeros(value.shape, value.dtype))
            interpreter.invoke()
            self._content = _completed(content, self._graph, interpreter)
            runner = _interpreter(self._content, _EXACT)
            self._signature: str = next(iter(runner.get_signature_list()))
            runner.allocate_tensors()
            keys = runner.get_signature_runner(self._signature).get_input_details()
            self._names: dict[str, str] = {key: each["name"] for key, each in keys.items()}

    def quantise(self, samples: Sequence[Sample]) -> bytes:
        """Quantise with a scale for each channel of weights, see FloatModel.

        The range of a tensor goes from the least to the largest value in all samples, as in ONNX
        Runtime. The library's default is an average that starts from the first sample. It cuts off
        larger values of other samples.
        """
        with refusals(_REFUSED):
            names = library(f"{_QUANTISER}.qtyping").TFLOperationName
            recipes = library(f"{_QUANTISER}.recipe")
            recipe = recipes.static_wi8_ai16() if self._wide else recipes.static_wi8_ai8()
            module = library(f"{_QUANTISER}.quantizer")
            content = _without_masks(self._content, self._graph)
            quantiser = module.Quantizer(content, recipe)
            for edge in (names.INPUT, names.OUTPUT):
                quantiser.update_quantization_recipe(
                    ".*", edge, algorithm_key=module.AlgorithmName.NO_QUANTIZE
                )
            # The calibration finds no ranges for tensors in bodies of control flow.
            quantiser.update_quantization_recipe(
                f"{BODY}.*", names.ALL_SUPPORTED, algorithm_key=module.AlgorithmName.NO_QUANTIZE
            )
            manager = library(f"{_QUANTISER}.recipe_manager").RecipeManager()
            manager.load_quantization_recipe(quantiser.get_quantization_recipe())
            calibrator = library(f"{_QUANTISER}.calibrator").Calibrator(
                content,
                num_threads=os.cpu_count() or 1,
                qsv_update_func=library(f"{_QUANTISER}.utils.qsv_utils").min_max_update,
            )
            calibrator.calibrate(self._data(samples), manager)
            ranges = calibrator.get_model_qsvs()
            made = bytes(quantiser.quantize(ranges, enable_progress_report=False).quantized_model)
        if self._inner:
            # LiteRT crashes with bodies that do not fit the quantised operator around them.
            with Session(Interpreter.LITERT, made, probe=True):
                pass
        return made

    def run(self, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        """Run the float network, see FloatModel."""
        return _run(self._content, _FAST, samples)

    def run_quantised(self, content: bytes, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        """Run the int8 network with the kernels that the machine equals in every byte, see
        FloatModel."""
        return _run(content, _EXACT, samples)

    def signal_to_noise(self, content: bytes, samples: Sequence[Sample]) -> dict[str, float]:
        """Compare layers, named by their numbers and operators; see FloatModel."""
        with refusals("ai-edge-quantizer cannot compare the layers"):
            module = library(f"{_QUANTISER}.utils.validation_utils")
            metric = module.ValidationErrorMetric.SNR
            ratio = module.get_validation_func(metric)

            def decibels(found: NDArray[Any], exact: NDArray[Any]) -> float:
                return 10 * log10(max(ratio(found, exact), _NO_SIGNAL))

            compared = library(f"{_QUANTISER}.model_validator").compare_model(
                self._content,
                content,
                self._data(samples[:COMPARED]),
                [metric],
                [decibels],
                use_xnnpack=False,
                num_threads=os.cpu_count() or 1,
            )
            results: dict[str, Any] = compared.get_all_tensor_results()
        return {
            f"{operator.index} {operator.kind}": float(results[name]["snr"])
            for operator in self._graph.operators
            for name in (self._graph.tensors[number].name for number in operator.outputs[:1])
            if name in results
        }

    def _data(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """Return `samples` in the library's form, in which the signature's names stand for the
        inputs."""
        return {
            self._signature: [
                {key: sample[name] for key, name in self._names.items()} for sample in samples
            ]
        }


def _without_masks(content: bytes, graph: Graph) -> bytes:
    """Return the model with constants in its masks that are less far below 0.

    With the original constants nearly all scores beside a mask would get the same int8 code.
    """
    tensors = graph.tensors
    constants = {number: each.data for number, each in enumerate(tensors) if each.data is not None}
    steps = [Step(each.kind, each.inputs, each.outputs) for each in graph.operators]
    clipped = masks(steps, constants, lambda number: np.asarray(constants[cast("int", number)]))
    if not clipped:
        return content
    model = unpacked(content)
    for number, values in clipped.items():
        replace_constant(model, cast("int", number), values)
    return packed(model)


def _check_float(graph: Graph) -> None:
    """Raise ModelError if anything but the model's weights is quantised already."""
    for tensor in graph.tensors:
        if (
            tensor.dtype in ("int8", "uint8", "int16")
            and len(tensor.scales)
            and tensor.data is None
        ):
            raise ModelError(
                f"the model is quantised already: tensor '{tensor.name}' is {tensor.dtype}"
            )


def _interpreter(content: bytes, resolver: str) -> Any:
    """Return LiteRT's interpreter for a model, with the kernels of an OpResolverType."""
    litert = library(_INTERPRETER)
    return litert.Interpreter(
        model_content=content,
        experimental_op_resolver_type=getattr(litert.OpResolverType, resolver),
    )


def _sizes(details: Any) -> Any:
    """Return the sizes of an input; -1 stands for a size that the file leaves open."""
    signature = details["shape_signature"]
    return signature if len(signature) else details["shape"]


def _completed(content: bytes, graph: Graph, interpreter: Any) -> bytes:
    """Return a model with the sizes that `interpreter` has found, and with a signature."""
    signed = bool(interpreter.get_signature_list())
    sizes = {each["index"]: each["shape"] for each in interpreter.get_tensor_details()}
    fixed = all(
        tensor.dtype != "float16" and not tensor.open and tensor.shape == tuple(sizes[number])
        for number, tensor in enumerate(graph.tensors)
        if number in sizes
    )
    if signed and fixed:
        return content
    schema = library(SCHEMA)
    model = unpacked(content)
    subgraph = model.subgraphs[0]
    widen(schema, model, subgraph)
    for number, tensor in enumerate(subgraph.tensors):
        if graph.tensors[number].data is None and number in sizes:
            tensor.shape, tensor.shapeSignature = list(map(int, sizes[number])), None
    if not signed:
        model.signatureDefs = [_new_signature(schema, subgraph)]
    return packed(model)


def _new_signature(schema: Any, subgraph: Any) -> Any:
    """Return a signature that calls inputs and outputs by the names of their tensors."""

    def entry(number: int) -> Any:
        result = schema.TensorMapT()
        result.name, result.tensorIndex = subgraph.tensors[number].name, number
        return result

    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = _SIGNATURE, 0
    signature.inputs = list(map(entry, subgraph.inputs))
    signature.outputs = list(map(entry, subgraph.outputs))
    return signature


def _run(content: bytes, resolver: str, samples: Sequence[Sample]) -> list[NDArray[Any]]:
    """Return each output of a model for `samples`."""
    with refusals("LiteRT cannot run it"):
        interpreter = _interpreter(content, resolver)
        interpreter.allocate_tensors()
        inputs = {each["name"]: each["index"] for each in interpreter.get_input_details()}
        outputs = [each["index"] for each in interpreter.get_output_details()]
        results: list[list[NDArray[Any]]] = []
        for sample in samples:
            # Without a reset, the state of an LSTM would pass from one sample to the next.
            interpreter.reset_all_variables()
            for name, value in sample.items():
                interpreter.set_tensor(inputs[name], value)
            interpreter.invoke()
            results.append([interpreter.get_tensor(index).copy() for index in outputs])
    return [np.array(each) for each in zip(*results, strict=True)]
