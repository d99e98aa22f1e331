# SPDX-License-Identifier: Apache-2.0
from enum import Enum

class PortDirection(Enum):
    Input = "input"
    Output = "output"
    Inout = "inout"
