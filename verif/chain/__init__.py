# SPDX-License-Identifier: Apache-2.0
"""The same programs on the golden model and on every simulator: the same bytes and cycles."""
