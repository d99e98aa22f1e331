# SPDX-License-Identifier: Apache-2.0
"""Training of networks with branches. Such networks have joins (Add and Concatenate), and results
that several layers take.
"""
