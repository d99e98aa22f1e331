# SPDX-License-Identifier: Apache-2.0
"""The package that cocotb tests share: a bench of the whole machine, models, checks, programs."""
