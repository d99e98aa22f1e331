# SPDX-License-Identifier: Apache-2.0
"""The common ground of software and hardware: configuration, instruction set, registers."""
