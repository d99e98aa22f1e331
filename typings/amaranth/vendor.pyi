# SPDX-License-Identifier: Apache-2.0
class GowinPlatform: ...

class LatticePlatform:
    family: str

class SiliconBluePlatform: ...

class XilinxPlatform:
    family: str
