# SPDX-License-Identifier: Apache-2.0
"""What README.md and docs/results.md claim, measured: cycles, and the simulator of v1."""
