# SPDX-License-Identifier: Apache-2.0
"""Several cores in a ring."""
