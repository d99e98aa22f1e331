# SPDX-License-Identifier: Apache-2.0
"""What the programs that were run have exercised: of the instruction set, and of the hardware."""
