# SPDX-License-Identifier: Apache-2.0
"""The error for a mistake by the user."""


class UserError(Exception):
    """A mistake by the user, in one line: it is printed unchanged, with exit status 2."""
