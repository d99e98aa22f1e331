# SPDX-License-Identifier: Apache-2.0
"""A step of a batch that has no room in the buffer: turns of some samples each, layer by layer."""
