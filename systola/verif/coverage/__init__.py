# SPDX-License-Identifier: Apache-2.0
"""Coverage: the parts of the instruction set and of the hardware that programs have used."""
