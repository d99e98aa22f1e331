# SPDX-License-Identifier: Apache-2.0
"""Runs every model file in a folder on the golden model, and counts the outcomes by reason.

`python -m systola.bench.survey FOLDER` compiles each .tflite and .onnx file, a float network after
quantisation on random data. It runs the network on random samples, and compares all bytes with
results of the interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.cli.arguments import add_preset
from systola.compiler.cut.placement import macs_share
from systola.compiler.cut.source import Source
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.interpreted import Interpreter
from systola.compiler.operations import Value
from systola.compiler.read_model import read_source
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.reader import read_tflite
from systola.runtime.compile_content import compile_content
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.execute import HostError
from systola.runtime.interpreters import open_here
from systola.runtime.quantiser.quantize import quantize_float, read_float

SAMPLES = 2
RIGHT = ("right", "right after quantising", "near")
"""Outcomes of networks that run. With 'near', results differ from ONNX Runtime's by one code or a
few.
"""
MOST = 0.8
"""Least share of a network's products that counts as most of them in the survey's report."""
NEAR = 4 / 255
"""The largest difference that is called near, in parts of the range of an output."""
_LIBRARIES = ("ai_edge_litert.interpreter", "onnxruntime", "systola.timing.estimate")
"""Modules that each forked process finds imported."""

Outcome = dict[str, Any]


def examine(path: Path, config: Config) -> Outcome:
    """Return the type, the outcome and its reason for one file."""
    content = path.read_bytes()
    found: Outcome = {"file": path.name, "form": "unknown", "reason": ""}
    try:
        source = read_source(content)
        if source is None:
            raise ModelError("neither a TensorFlow Lite nor an ONNX model")
        found["form"] = _form(content, source)
        found.update(_run(config, content))
    except (ModelError, CompileError) as error:
        found.update(outcome="refused", reason=_short(error))
        if found["form"] in ("float32", "unknown"):
            found.update(_quantised(config, content))
    return found


def _form(content: bytes, source: Source) -> str:
    """Return the narrowest type of all values that the network calculates."""
    types = {value.dtype for value in source.values.values()}
    if source.semantics is not Semantics.ONNX:
        tensors = read_tflite(content, main=True).tensors
        types = {tensor.dtype for tensor in tensors if tensor.data is None}
    return next((name for name in ("int8", "uint8", "int16", "float32") if name in types), "other")


def _quantised(config: Config, content: bytes) -> Outcome:
    """Return the outcome of a float network that is quantised on random data."""
    try:
        model = read_float(content)
        result = quantize_float(model, random_samples(model.inputs, 4))
    except ModelError as error:
        return {"outcome": "not quantised", "reason": _short(error)}
    try:
        found = _run(config, result.content)
    except (ModelError, CompileError) as error:
        return {"outcome": "refused after quantising", "reason": _short(error)}
    if found["outcome"] == "right":
        found["outcome"] = "right after quantising"
    return found


def _run(config: Config, content: bytes) -> Outcome:
    """Compile a network, run it and compare the results. Exceptions of the compiler are passed
    on.
    """
    model = compile_content(config, content, None, SAMPLES if _takes_samples(content) else 1)
    share = macs_share(model.placement) if any(each.macs for each in model.placement) else None
    x = random_samples(model.inputs, SAMPLES)
    try:
        found = model.run(*x, backend="iss").outputs
    except HostError as error:
        return {"outcome": "no result", "reason": _short(error), "share": share}
    return {**_compare(model, content, x, found), "share": share}


def _takes_samples(content: bytes) -> bool:
    """Return whether the whole network runs on the machine and takes several samples; a cut network
    takes one.
    """
    source = read_source(content)
    return source is not None and not source.refused()


def random_samples(inputs: Sequence[Value], count: int) -> list[NDArray[Any]]:
    """Return `count` samples for each input: codes of the whole range, numbers about 0 to 1."""
    rng = np.random.default_rng(count)
    arrays: list[NDArray[Any]] = []
    for value in inputs:
        shape = (count, *value.shape)
        if value.dtype == "float32":
            arrays.append(rng.normal(0, 1, shape).astype(np.float32))
        elif value.dtype in ("int8", "uint8"):
            limits = np.iinfo(value.dtype)
            arrays.append(rng.integers(limits.min, limits.max + 1, shape).astype(value.dtype))
        elif value.dtype == "int16":
            arrays.append(rng.integers(-(1 << 15), 1 << 15, shape).astype(np.int16))
        else:
            arrays.append(rng.integers(0, 2, shape).astype(value.dtype))
    return arrays


def _compare(
    model: CompiledModel,
    content: bytes,
    x: Sequence[NDArray[Any]],
    found: Sequence[NDArray[Any]],
) -> Outcome:
    onnx = model.semantics is Semantics.ONNX
    interpreter = Interpreter.ONNX_RUNTIME if onnx else Interpreter.LITERT
    try:
        opened = open_here(interpreter, content)
        rows = [opened.run(sample) for sample in zip(*x, strict=True)]
    # The exceptions of ONNX Runtime have no other class in common.
    except Exception as error:
        return {"outcome": "interpreter refuses", "reason": _short(error)}
    worst = 0.0
    for number, column in enumerate(zip(*rows, strict=True)):
        expected, result = np.array(column), found[number]
        if (result.shape, result.dtype) != (expected.shape, expected.dtype):
            reason = f"{result.dtype} {result.shape}, not {expected.dtype} {expected.shape}"
            return {"outcome": "wrong", "reason": f"output {number}: {reason}"}
        if result.tobytes() != expected.tobytes():
            worst = max(worst, _distance(result, expected))
    if not worst:
        return {"outcome": "right"}
    near = onnx and worst <= NEAR
    return {"outcome": "near" if near else "wrong", "reason": f"off by {worst:.4f} of the range"}


def _distance(result: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference, in parts of the range of the values."""
    a, b = result.astype(np.float64), expected.astype(np.float64)
    differences = np.abs(np.where(a == b, 0, a - b))
    differences = differences[~(np.isnan(a) & np.isnan(b))]
    if not differences.size:
        return 0.0
    span = 255.0 if expected.dtype.itemsize == 1 else float(np.ptp(b)) or 1.0
    return float(np.nan_to_num(differences.max(), nan=np.inf) / span)


def _short(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:1000]


def in_process(path: Path, config: Config, seconds: int) -> Outcome:
    """Return the outcome of a file from a process of its own, with `seconds` of processor time."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        signal.alarm(5 * seconds)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            found = examine(path, config)
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
            found = {"file": path.name, "outcome": "traceback", "reason": text[:1000]}
        with os.fdopen(write_end, "w") as stream:
            json.dump(found, stream)
        os._exit(0)
    os.close(write_end)
    begin = time.monotonic()
    with os.fdopen(read_end) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    found = json.loads(text) if text else {"file": path.name, "outcome": "time or crash"}
    if not text:
        found["reason"] = f"the process ended with status {status}"
    return {"form": "unknown", "reason": "", **found, "seconds": time.monotonic() - begin}


def cause(reason: str) -> str:
    """Return the kind of operator and the reason in a message, without places and sizes."""
    parts = re.search(r"operator \d+ \(([^)]*)\):? ?(.*)", reason)
    text = f"{parts[1]}: {parts[2]}" if parts else reason
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", text.split(";")[0]))[:110]


def table(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """Return the counts by type and outcome, and the reasons of all outcomes but "right"."""
    count = len(outcomes)
    lines = [f"{count} files"]
    for form in sorted({each["form"] for each in outcomes}):
        here = [each for each in outcomes if each["form"] == form]
        runs = sum(each["outcome"] in RIGHT for each in here)
        kinds = Counter(each["outcome"] for each in here).most_common()
        parts = ", ".join(f"{number} {kind}" for kind, number in kinds)
        lines.append(f"{form}: {runs} of {len(here)} run ({runs / len(here):.0%}): {parts}")
    found = [each.get("share") for each in outcomes if each["outcome"] in RIGHT]
    shares = [share for share in found if share is not None]
    if shares:
        most = sum(share >= MOST for share in shares)
        lines.append(
            f"{most} of {len(shares)} with products have {MOST:.0%} of them on the machine"
        )
    reasons = Counter(
        (each["outcome"], cause(each["reason"])) for each in outcomes if each["outcome"] != "right"
    )
    lines += [f"{number:5d}  {kind}: {text}" for (kind, text), number in reasons.most_common()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the survey; return 1 where a result is wrong or a file ends in a traceback."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with .tflite and .onnx files")
    parser.add_argument("--seconds", type=int, default=120, help="processor time for one file")
    parser.add_argument("--json", type=Path, help="file for the outcome of each model")
    add_preset(parser)
    given = parser.parse_args(arguments)
    for name in _LIBRARIES:
        import_module(name)
    warnings.simplefilter("ignore")
    files = sorted(each for each in given.folder.rglob("*") if each.suffix in (".tflite", ".onnx"))
    outcomes: list[Outcome] = []
    for path in files:
        found = in_process(path, given.preset, given.seconds)
        outcomes.append(found)
        print(f"{found['outcome']:24} {found['seconds']:6.1f} s  {path.name}", file=sys.stderr)
        if given.json:
            given.json.write_text(json.dumps(outcomes, indent=1) + "\n")
    print(table(outcomes))
    return int(any(each["outcome"] in ("wrong", "traceback") for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
