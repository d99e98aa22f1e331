# SPDX-License-Identifier: Apache-2.0
"""A judge of the compiler's treatment of a model file that may be damaged.

The compiler may refuse the file with one line, soon and without much memory. Or it may accept the
file. Then the compiled model's results must equal the results of the official interpreter, unless
the interpreter refuses the file.
"""

from __future__ import annotations

import resource
import signal
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from systola.arch.config import preset as named_preset
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.host_stage import QuantisedSoftmax, RealSoftmax
from systola.compiler.read_model import read_model
from systola.compiler.semantics import Semantics
from systola.runtime import api
from systola.runtime.compiled_model import CompiledModel, compile_model
from systola.runtime.execute import HostError
from systola.verif.compiler.onnx_session import run_samples

# Some modules are otherwise imported only during a compilation, which would take each fork longer
# than most compilations. They are imported here, so that each fork has them.
for name in ("systola.timing.estimate", "onnx", "google.protobuf.message"):
    import_module(name)

CPU_SECONDS = 60
"""Seconds of processor time that the compilation of a model file may take."""
MEMORY = 1 << 31
"""Bytes of memory that a compilation may take, in addition to the process's memory before."""
MOST_WORK = 40_000_000
"""Largest number of multiply-accumulates, inputs and outputs with which a model is run."""
SAMPLES = 2
PARTIAL = 8
"""One model in this number of models is compiled such that parts may go to the host.

A model in pieces takes a second, since it starts processes for interpreters.
"""


@dataclass(frozen=True)
class Verdict:
    """A verdict on the compiler's treatment of a model file."""

    kind: str
    """Kind of verdict: 'refused', 'equal', 'unconfirmed', 'too large', 'near' or 'wrong'.

    'unconfirmed' means that the interpreter crashes, or refuses a file that the compiler accepts. A
    model that is 'too large' is not run. Results that are 'near' are not meant to be exact.
    """
    text: str = ""
    """The error for kind 'wrong', the message for 'refused', else the interpreter's message."""


class _TooLong(BaseException):
    pass


def verdicts(content: bytes, preset: str, seed: int) -> Iterator[Verdict]:
    """Yield verdicts on the compiler's treatment of a model file; only the last verdict counts.

    The interpreter may crash and end the process, and then the first verdict counts.
    """
    warnings.simplefilter("error")
    try:
        with _Limits():
            if seed % PARTIAL:
                network, semantics = read_model(content)
                model = compile_model(named_preset(preset), network, semantics, SAMPLES)
            else:
                model = api.compile(content, preset=preset, batch=SAMPLES)
            stored = model.to_bytes()
    except (ModelError, CompileError) as error:
        yield _refusal(str(error))
        return
    except BaseException:
        yield Verdict("wrong", traceback.format_exc())
        return
    if SAMPLES * _work(model) > MOST_WORK:
        yield Verdict("too large")
        return
    rng = np.random.default_rng(seed)
    x = [_samples(rng, value.dtype, (SAMPLES, *value.shape)) for value in model.inputs]
    try:
        # A model that is loaded from a file must give the same results as the model before it was
        # stored.
        model = api.load(stored) if rng.integers(4) == 0 else model
        y = model.run(*x, backend="iss").outputs
    except HostError as error:
        yield Verdict("unconfirmed", f"no result: {error}")
        return
    except BaseException:
        yield Verdict("wrong", traceback.format_exc())
        return
    yield Verdict("unconfirmed", "the interpreter crashes, or does not end")
    try:
        if model.semantics == Semantics.ONNX:
            yield _onnx_comparison(content, x, y, exact=_is_exact(model))
        else:
            yield _comparison(y, _interpreted(content, x))
    except Exception as error:
        yield Verdict("unconfirmed", " ".join(str(error).split()))


class _Limits:
    """A context manager that limits the processor time and the memory of its block."""

    def __enter__(self) -> None:
        signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)


def _stop(_: int, __: FrameType | None) -> None:
    raise _TooLong


def _refusal(message: str) -> Verdict:
    if not message or not message.isprintable() or len(message) > 1000:
        return Verdict("wrong", f"not a message of one line: {message!r}")
    return Verdict("refused", message)


def _work(model: CompiledModel) -> int:
    values = (*model.inputs, *model.outputs)
    return model.macs + sum(int(np.prod(value.shape, dtype=float)) for value in values)


def _is_exact(model: CompiledModel) -> bool:
    """Return whether each result should equal ONNX Runtime's result.

    A softmax of float32 is never exact.
    """
    functions = [getattr(stage, "function", None) for stage in model.compiled.stages]
    softmax = any(isinstance(each, QuantisedSoftmax | RealSoftmax) for each in functions)
    return model.inexact_channels == 0 and not softmax


def _samples(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return random values for an input; a tenth of int8 values are at the ends of the range."""
    if dtype == "float32":
        return rng.normal(0, 10 ** rng.uniform(-2, 1.5), shape).astype(dtype)
    if dtype == "int8":
        values = rng.integers(-128, 128, shape)
        ends = rng.choice([-128, 127], shape)
        return np.where(rng.random(shape) < 0.1, ends, values).astype(dtype)
    # Whole numbers are inputs of an embedding: each is a row number of the embedding's table.
    return rng.integers(0, 4, shape).astype(dtype)


def _interpreted(content: bytes, x: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return LiteRT's outputs for all samples, or raise the errors of the interpreter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = Interpreter(
            model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
        )
    interpreter.allocate_tensors()
    outputs: list[list[NDArray[Any]]] = []
    for sample in zip(*x, strict=True):
        # Without a reset, the state of an LSTM would pass from one sample to the next.
        interpreter.reset_all_variables()
        for details, value in zip(interpreter.get_input_details(), sample, strict=True):
            interpreter.set_tensor(details["index"], value)
        interpreter.invoke()
        outputs.append(
            [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]
        )
    return [np.array(each) for each in zip(*outputs, strict=True)]


def _onnx_comparison(
    content: bytes, x: list[NDArray[Any]], y: tuple[NDArray[Any], ...], *, exact: bool
) -> Verdict:
    """Compare results with ONNX Runtime's results, with its optimisations and without them.

    The optimisations turn parts of the model into QLinear operators. It is enough if the results
    are equal in one of the two ways.
    """
    verdict = Verdict("equal")
    for optimised in (True, False):
        expected = run_samples(content, x, optimised=optimised)
        verdict = _comparison(y, expected)
        if verdict.kind == "equal":
            return verdict
        # If ONNX Runtime leaves an operator in float32, a sum half way between two codes may become
        # either code.
        most = 16 if not exact else 1
        if all(_near(a, b, most) for a, b in zip(y, expected, strict=True)):
            return Verdict("near")
    return verdict


def _near(y: NDArray[Any], expected: NDArray[Any], most: int) -> bool:
    """Return whether results differ by at most `most` steps.

    A step of float results is 1/255 of their range. A step of other results is 1.
    """
    if y.shape != expected.shape or y.dtype != expected.dtype:
        return False
    differences = np.abs(y.astype(np.float64) - expected.astype(np.float64))
    step = 1.0 if y.dtype.kind in "iu" else float(np.ptp(expected.astype(np.float64))) / 255
    return bool(differences.max() <= most * step)


def _comparison(y: tuple[NDArray[Any], ...], expected: list[NDArray[Any]]) -> Verdict:
    if len(y) != len(expected):
        return Verdict("wrong", f"{len(y)} outputs, not {len(expected)}")
    for number, (a, b) in enumerate(zip(y, expected, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return Verdict(
                "wrong", f"output {number} is {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
            )
        differing = int((a.view(np.uint8) != b.view(np.uint8)).sum()) if a.size else 0
        if differing:
            return Verdict("wrong", f"{differing} bytes of {a.nbytes} of output {number} differ")
    return Verdict("equal")
