# SPDX-License-Identifier: Apache-2.0
"""What cocotb tests share: bench of the whole machine, AXI and stream models, checks, programs."""
