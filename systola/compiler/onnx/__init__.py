# SPDX-License-Identifier: Apache-2.0
"""The front end for ONNX models that ONNX Runtime's quantiser has made."""
