# SPDX-License-Identifier: Apache-2.0
class AlteraPlatform: ...
class GowinPlatform: ...

class LatticePlatform:
    family: str

class QuicklogicPlatform: ...
class SiliconBluePlatform: ...

class XilinxPlatform:
    family: str

AMDPlatform = XilinxPlatform
IntelPlatform = AlteraPlatform
LatticeECP5Platform = LatticePlatform
LatticeICE40Platform = SiliconBluePlatform
LatticeMachXO2Platform = LatticePlatform
LatticeMachXO3LPlatform = LatticePlatform
