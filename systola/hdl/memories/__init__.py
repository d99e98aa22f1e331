# SPDX-License-Identifier: Apache-2.0
"""The unified buffer, the accumulators, and the memories that both are built from."""
