# SPDX-License-Identifier: Apache-2.0
"""The compilation of a single matrix product with requantised results, all in host memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Function, Rounding
from systola.compiler.errors import CompileError
from systola.compiler.layer import Layer
from systola.compiler.program import Program
from systola.compiler.schedule import compile_chain


def compile_gemm(
    config: Config,
    a: NDArray[np.int8],
    w: NDArray[np.int8],
    bias: NDArray[np.int32],
    multiplier: NDArray[np.int32],
    shift: NDArray[np.int32],
    *,
    rounding: Rounding,
    zero_point: int = 0,
    function: Function = Function.NONE,
    ceiling: int = 127,
    table: bytes | None = None,
) -> Program:
    """Compile the product activate(a @ w + bias) to a program; class Layer describes the arguments.

    The program's image of host memory contains `a`, which is M x K. Raises CompileError if shapes
    or values of the arguments do not match, or if they do not fit the machine.
    """
    layer = Layer(
        weights=w,
        bias=bias,
        multiplier=multiplier,
        shift=shift,
        rounding=rounding,
        zero_point=zero_point,
        function=function,
        ceiling=ceiling,
        table=table,
    )
    if a.ndim != 2 or a.shape[1] != layer.k:
        raise CompileError(f"a must be M x {layer.k} as w has {layer.k} rows, not {a.shape}")
    compiled = compile_chain(config, [layer], a.shape[0])
    return replace(compiled, image=compiled.bind(a))
