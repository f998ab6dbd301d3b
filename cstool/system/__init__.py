"""The machine as data: systems and their clusters, read from system files."""

from cstool.system.load import STATUSES, load_system, system_names
from cstool.system.system import (
    Fabric,
    HostsUnit,
    Links,
    MemoryXUnit,
    ProcessingElement,
    Release,
    ServersUnit,
    Software,
    SwarmXUnit,
    System,
)
