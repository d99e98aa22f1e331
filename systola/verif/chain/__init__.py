# SPDX-License-Identifier: Apache-2.0
"""A check that the golden model and every simulator agree on the bytes and cycles of programs."""
