"""The machine as data: systems and their clusters, read from system files."""

from cstool.model.system.load import STATUSES, load_system, system_names
from cstool.model.system.system import (
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
