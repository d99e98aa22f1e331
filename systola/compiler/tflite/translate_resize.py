# SPDX-License-Identifier: Apache-2.0
"""The translation of RESIZE_BILINEAR.

Each pixel of the result is a weighted sum of pixels of the source. The machine takes sizes for
which weights of 8 bits are exact (see `resized`), the host takes all others.
"""

from __future__ import annotations

from systola.compiler.bilinear import bilinear_places
from systola.compiler.errors import ModelError
from systola.compiler.host_stage import ResizeBilinear
from systola.compiler.resize import resized
from systola.compiler.tflite.graph import Operator
from systola.compiler.tflite.scope import Scope, check_maps, one_result
from systola.compiler.tflite.translate_convolution import check_shape


def translate_resize_bilinear(scope: Scope, operator: Operator) -> None:
    """Translate RESIZE_BILINEAR of int8 to the machine, or to the host for sizes that have no exact
    weights of 8 bits.
    """
    one_result(operator, 2)
    source, _ = scope.source(operator)
    result, _ = scope.result(operator)
    check_maps(source, result)
    sizes = scope.whole_numbers(operator, 1).reshape(-1).tolist()
    if len(sizes) != 2:
        raise ModelError("its size must be two numbers")
    check_shape(result, (1, sizes[0], sizes[1], source.channels))
    align, half = (bool(operator.options.get(n)) for n in ("AlignCorners", "HalfPixelCenters"))
    if align and half:
        raise ModelError("it cannot align both corners and centres")
    rows, columns = (
        bilinear_places(size, out, align_corners=align, half_pixel_centers=half)
        for size, out in zip(source.grid, sizes, strict=True)
    )
    try:
        scope.add(*resized(str(operator), source, result, rows, columns))
    except ModelError as error:
        function = ResizeBilinear((sizes[0], sizes[1]), align, half)
        scope.host(operator, function, result, source, reason=str(error))
