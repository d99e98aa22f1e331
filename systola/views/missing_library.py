# SPDX-License-Identifier: Apache-2.0
"""The error for a picture when the library that draws it is not installed."""


class MissingLibraryError(RuntimeError):
    """An error that names the library that a picture needs, and the way to install it."""
