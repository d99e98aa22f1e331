# SPDX-License-Identifier: Apache-2.0
"""Golden model of the instruction set in numpy, written from arch/isa/ only."""
