# SPDX-License-Identifier: Apache-2.0
"""A model of the machine's cycles that is quick, since it runs no data."""
