"""The host side: `cslc`, `cs_python`, the package `cerebras` of host scripts, and the simulator process."""
