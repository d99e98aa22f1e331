# SPDX-License-Identifier: Apache-2.0
"""Many random programs on the simulated machine, in parallel, and the treatment of failures."""
