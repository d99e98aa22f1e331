# SPDX-License-Identifier: Apache-2.0
"""The interpreters that define the results of model files, each model in a process of its own.

They are native libraries, which a damaged model can crash: the process ends then, nothing else. A
message between the processes is a line of JSON, with the types and shapes of the arrays after it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.interpreted import Interpreter
from systola.compiler.printable import reason_of

Arrays = Sequence[NDArray[Any]]
Message = tuple[dict[str, Any], list[NDArray[Any]]]
_MODULES = {
    Interpreter.LITERT: "ai_edge_litert",
    Interpreter.ONNX_RUNTIME: "onnxruntime",
}


class MissingInterpreterError(ModelError):
    """An interpreter that is not installed, in one line."""


class Session:
    """A model in an interpreter; variables of the model keep their values between samples.

    The process ends with the context. Raises MissingInterpreterError if the interpreter is not
    installed, and ModelError if it refuses the model.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        model: bytes,
        *,
        optimised: bool = True,
        probe: bool = False,
    ) -> None:
        """Open the model; without `optimised` ONNX Runtime leaves the graph as it is.

        `probe`: True to find sizes that are known after a run only, by a run on zeros.
        """
        self._name = interpreter.value
        if find_spec(_MODULES[interpreter]) is None:
            raise MissingInterpreterError(
                f"{self._name} is not installed, which does on the host what the machine does not: "
                "pip install 'systola[host]'"
            )
        self._process = subprocess.Popen(
            # The module is not taken from the working directory, which may contain anything.
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            opening = {
                "interpreter": interpreter.value,
                "optimised": optimised,
                "probe": probe,
            }
            header, _ = self._answer(opening, [np.frombuffer(model, np.uint8)])
        except ValueError as error:
            self.close()
            raise ModelError(f"{self._name} refuses the model: {error}") from None
        except BaseException:
            self.close()
            raise
        self.tensors: Mapping[int | str, tuple[str, tuple[int, ...]]] = {
            key: (kind, tuple(shape)) for key, kind, shape in header["tensors"]
        }
        """Type, in the interpreter's spelling, and shape of each tensor. Sizes that are not known
        are 0.

        Tensors of LiteRT are known by number, and outputs of ONNX Runtime by name.
        """

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        # The end of this context closes the streams of the process. A message in them that the
        # process has not read raises BrokenPipeError.
        with suppress(BrokenPipeError), self._process:
            pass

    def restart(self) -> None:
        """Give variables their first values again; raise ValueError if the process has ended."""
        self._answer({"restart": True}, [])

    def run(self, sample: Arrays) -> list[NDArray[Any]]:
        """Return the results for one sample, of which `sample` has an array for each input.

        Raises ValueError if the interpreter refuses the values.
        """
        return self._answer({}, sample)[1]

    def _answer(self, header: dict[str, Any], arrays: Arrays) -> Message:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            _send(self._process.stdin, header, arrays)
            answer, results = _received(self._process.stdout)
        except (EOFError, BrokenPipeError):
            raise ValueError(f"{self._name} has crashed") from None
        if "error" in answer:
            raise ValueError(str(answer["error"]))
        return answer, results


def _send(stream: IO[bytes], header: dict[str, Any], arrays: Arrays) -> None:
    whole = [np.ascontiguousarray(array) for array in arrays]
    forms = [(array.dtype.name, array.shape) for array in arrays]
    stream.write(json.dumps({**header, "arrays": forms}).encode() + b"\n")
    for array in whole:
        stream.write(array.tobytes())
    stream.flush()


def _received(stream: IO[bytes]) -> Message:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    header = cast("dict[str, Any]", json.loads(line))
    arrays: list[NDArray[Any]] = []
    for name, shape in header["arrays"]:
        dtype = np.dtype(name)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        content = stream.read(size)
        if len(content) != size:
            raise EOFError
        arrays.append(np.frombuffer(content, dtype).reshape(shape))
    return header, arrays


class _LiteRt:
    """LiteRT with its reference kernels."""

    def __init__(self, model: bytes, optimised: bool) -> None:
        # Optional, and without type information.
        litert: Any = import_module("ai_edge_litert.interpreter")
        self._interpreter: Any = litert.Interpreter(
            model_content=model, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
        )
        self._interpreter.allocate_tensors()

    def tensors(self) -> list[tuple[int | str, str, list[int]]]:
        """Return number, type and shape of each tensor."""
        details = self._interpreter.get_tensor_details()
        return [
            (
                int(each["index"]),
                np.dtype(each["dtype"]).name,
                [int(size) for size in each["shape"]],
            )
            for each in details
        ]

    def probed(self) -> list[tuple[int | str, str, list[int]]]:
        """Return number, type and shape of each tensor, as they are after a run on zeros."""
        details = self._interpreter.get_input_details()
        zeros: list[NDArray[Any]] = [np.zeros(each["shape"], each["dtype"]) for each in details]
        self.run(zeros)
        return self.tensors()

    def run(self, sample: Arrays) -> list[NDArray[Any]]:
        """Return the results for one sample."""
        interpreter = self._interpreter
        # The state inside an LSTM begins anew with each sample; variables do not.
        interpreter.reset_all_variables()
        for details, array in zip(interpreter.get_input_details(), sample, strict=True):
            interpreter.set_tensor(details["index"], array.reshape(details["shape"]))
        interpreter.invoke()
        return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]


class _OnnxRuntime:
    """ONNX Runtime on the CPU, on one thread, so that equal samples give equal results."""

    def __init__(self, model: bytes, optimised: bool) -> None:
        # Optional, and its type information has gaps.
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        level = runtime.GraphOptimizationLevel
        options.graph_optimization_level = (
            level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        )
        options.intra_op_num_threads = 1
        self._session: Any = runtime.InferenceSession(model, options, ["CPUExecutionProvider"])

    def tensors(self) -> list[tuple[int | str, str, list[int]]]:
        """Return name, type and shape of each output."""
        return [
            (each.name, each.type, [size if isinstance(size, int) else 0 for size in each.shape])
            for each in self._session.get_outputs()
        ]

    def probed(self) -> list[tuple[int | str, str, list[int]]]:
        """Return name, type and shape of each output; the shapes are found by a run on zeros."""
        # The names of the types of ONNX Runtime, such as tensor(int64), are numpy's except for
        # these.
        types = {"float": "float32", "double": "float64", "float16": "float16"}
        zeros: list[NDArray[Any]] = []
        for each in self._session.get_inputs():
            name = each.type.removeprefix("tensor(").removesuffix(")")
            sizes = [size if isinstance(size, int) else 1 for size in each.shape]
            zeros.append(np.zeros(sizes, types.get(name, name)))
        names = [each.name for each in self._session.get_inputs()]
        found = self._session.run(None, dict(zip(names, zeros, strict=True)))
        return [
            (each.name, each.type, list(np.shape(result)))
            for each, result in zip(self._session.get_outputs(), found, strict=True)
        ]

    def run(self, sample: Arrays) -> list[NDArray[Any]]:
        """Return the results for one sample."""
        inputs = self._session.get_inputs()
        pairs = zip(inputs, sample, strict=True)
        given = {
            each.name: array
            if not all(isinstance(size, int) for size in each.shape)
            else array.reshape(each.shape)
            for each, array in pairs
        }
        return [np.asarray(each) for each in self._session.run(None, given)]


def open_here(
    interpreter: Interpreter, model: bytes, *, optimised: bool = True
) -> _LiteRt | _OnnxRuntime:
    """Open a model in this process, which a damaged model can crash. Raises any exception of the
    interpreter.
    """
    kind = _LiteRt if interpreter is Interpreter.LITERT else _OnnxRuntime
    return kind(model, optimised)


def _serve(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    """Open a model, and run it on each sample that comes, until nothing more comes."""
    header, (model,) = _received(stdin)
    interpreter = Interpreter(header["interpreter"])

    def fresh() -> _LiteRt | _OnnxRuntime:
        return open_here(interpreter, model.tobytes(), optimised=header["optimised"])

    opened = fresh()
    tensors = opened.tensors()
    if header["probe"]:
        # A network may refuse zeros without being wrong. Its sizes stay unknown then.
        with suppress(Exception):
            tensors = opened.probed()
        opened = fresh()
    _send(stdout, {"tensors": tensors}, [])
    while True:
        message, sample = _received(stdin)
        if message.get("restart"):
            opened = fresh()
            _send(stdout, {}, [])
        else:
            _send(stdout, {}, opened.run(sample))


def _main() -> None:
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # The libraries may print anything, so their standard output is not the stream of messages.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        _serve(stdin, stdout)
    except EOFError:
        return
    # The exceptions of ONNX Runtime have no common base class but Exception.
    except Exception as error:
        _send(stdout, {"error": reason_of(error)}, [])


if __name__ == "__main__":
    _main()
