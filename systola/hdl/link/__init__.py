# SPDX-License-Identifier: Apache-2.0
"""Links of a core to its neighbours in a pod."""
