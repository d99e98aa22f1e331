# SPDX-License-Identifier: Apache-2.0
from typing import Any

def convert(
    elaboratable: Any, name: str = "top", platform: Any = None, *, ports: Any = None, **kwargs: Any
) -> str: ...
