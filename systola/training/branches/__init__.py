# SPDX-License-Identifier: Apache-2.0
"""Training of networks with branches: joins of results, and results and gradients that several
layers take.
"""
