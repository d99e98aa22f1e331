# SPDX-License-Identifier: Apache-2.0
"""When everything happens: a model of the machine's cycles, made to be quick."""
