# SPDX-License-Identifier: Apache-2.0
"""The machine in Amaranth: one unit a file, `tpu.py` at the top."""
