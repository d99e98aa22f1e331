# SPDX-License-Identifier: Apache-2.0
"""What the README claims, measured: cycles of matrix products, and the simulator of v1."""
