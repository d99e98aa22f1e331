# SPDX-License-Identifier: Apache-2.0
"""From a TensorFlow Lite model to operations."""
