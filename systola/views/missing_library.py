# SPDX-License-Identifier: Apache-2.0
"""The error for a picture when the library that draws it is not installed."""


class MissingLibraryError(RuntimeError):
    """An error that says which library a picture needs, and how to install it."""
