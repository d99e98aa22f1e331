# SPDX-License-Identifier: Apache-2.0
"""A record of the parts of the instruction set and of the hardware that programs have exercised."""
