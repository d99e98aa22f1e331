# SPDX-License-Identifier: Apache-2.0
"""What software and hardware agree on: configuration, instruction set, registers."""
