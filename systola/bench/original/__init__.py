# SPDX-License-Identifier: Apache-2.0
"""The six applications of the original's paper at full size."""
