# SPDX-License-Identifier: Apache-2.0
"""Networks of which the machine takes a part, and an interpreter on the host the rest."""
