# SPDX-License-Identifier: Apache-2.0
"""Functions that read a model file of any format and return a network."""

from __future__ import annotations

from systola.compiler.cut.onnx_source import OnnxSource
from systola.compiler.cut.source import Source
from systola.compiler.cut.tflite_source import TfliteSource
from systola.compiler.errors import ModelError
from systola.compiler.network import Network, build_network, make_network
from systola.compiler.onnx.translate import translate_onnx
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.reader import IDENTIFIER, read_tflite
from systola.runtime.program_file import is_trained

ONNX_START = b"\x08"
"""First byte of an ONNX file: the protobuf tag of the field for the format's version."""


def read_model(content: bytes, semantics: Semantics | None = None) -> tuple[Network, Semantics]:
    """Return the network in a file, and its semantics: the interpreter that gives equal results.

    If `semantics` is None, the default for the file's format is taken, such as LITERT_2 for
    `.tflite`. Raises ModelError if the file cannot be read, is not supported, or cannot have these
    semantics.
    """
    if is_trained(content):
        if semantics not in (None, Semantics.TRAINING):
            raise ModelError("a network that was trained here has the semantics training")
        # Modules of training are imported only for a network that was trained with them.
        from systola.training.network import translate_trained

        return make_network(translate_trained(content)), Semantics.TRAINING
    if content[4:8] == IDENTIFIER:
        semantics = semantics or Semantics.LITERT_2
        graph = read_tflite(content)
        if semantics not in (Semantics.LITERT_2, Semantics.LITERT_1_2):
            raise ModelError("a TensorFlow Lite model has the semantics litert-2 or litert-1.2")
        return build_network(graph, semantics), semantics
    if not content.startswith(ONNX_START):
        raise ModelError("neither a TensorFlow Lite nor an ONNX model, nor one trained here")
    if semantics not in (None, Semantics.ONNX):
        raise ModelError("an ONNX model has the semantics onnx")
    return make_network(translate_onnx(content)), Semantics.ONNX


def read_source(content: bytes, semantics: Semantics | None = None) -> Source | None:
    """Return a model file as a Source, from which segments can be run by an interpreter.

    `semantics` is as for read_model. Returns None if no Source exists for the file's format or for
    these semantics. Raises ModelError if the file cannot be read.
    """
    if content[4:8] == IDENTIFIER and semantics in (None, Semantics.LITERT_2):
        return TfliteSource(content)
    if content.startswith(ONNX_START) and semantics in (None, Semantics.ONNX):
        return OnnxSource(content)
    return None
