# SPDX-License-Identifier: Apache-2.0
"""The package that cocotb tests share: bench of the whole machine, models, checks, programs."""
