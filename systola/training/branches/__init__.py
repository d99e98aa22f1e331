# SPDX-License-Identifier: Apache-2.0
"""Networks with branches: joins, and results and gradients that several layers take."""
