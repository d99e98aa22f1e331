# SPDX-License-Identifier: Apache-2.0
"""What the user did wrong."""


class UserError(Exception):
    """A mistake by the user, in one line: printed as it stands, exit status 2."""
