# SPDX-License-Identifier: Apache-2.0
"""Single faults planted in the machine by Yosys, and whether the quick regression finds them."""
