"""The registers of one PE that hold operands of vector operations (DSRs)."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cstool.csl.fabric.dsd import Dsr, Mem1d, Mem4d, Operand, Settings
from cstool.csl.fabric.errors import empty_register
from cstool.csl.fabric.memory import bounds

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement

PLAIN = Settings()
"""Settings of an operation without any."""


class DsrFile:
    """Registers as `@load_to_dsr` left them: an operand, settings, and whether an operation advances it.

    Args:
        pe: the PE
    """

    def __init__(self, pe: "ProcessingElement") -> None:
        self._pe = pe
        self._registers: dict[Dsr, tuple[Operand, Settings, bool]] = {}

    def loaded(self) -> dict[Dsr, Operand]:
        """The operands in all registers that have one."""
        return {register: held[0] for register, held in self._registers.items()}

    def load(self, register: Dsr, operand: Operand, settings: Settings, save_address: bool) -> None:
        """`@load_to_dsr`. With `save_address` an operation leaves the register behind its last element."""
        self._registers[register] = (self.held_by(operand), settings, save_address)

    def held_by(self, operand: Operand) -> Operand:
        """The operand in a register; any other operand as it is."""
        if not isinstance(operand, Dsr):
            return operand
        held = self._registers.get(operand)
        if held is None:
            raise self._pe.error(empty_register(operand.file, operand.number))
        return held[0]

    def fit(self, register: Dsr, operand: Operand) -> None:
        """Replace the operand in a register by itself with other strides."""
        self._registers[register] = (operand, *self._registers[register][1:])

    def settings(self, operands: Iterable[Operand], settings: Settings) -> Settings:
        """The settings of an operation, completed from the registers among its operands."""
        for operand in operands:
            if isinstance(operand, Dsr) and operand in self._registers:
                of_register = self._registers[operand][1]
                if of_register is PLAIN:
                    continue
                changes = {
                    name: value
                    for name, value in of_register._asdict().items()
                    if value != getattr(PLAIN, name) and getattr(settings, name) == getattr(PLAIN, name)
                }
                settings = settings._replace(**changes)
        return settings

    def save(self, operands: Sequence[Operand], done: int) -> None:
        """Advance registers among the operands behind the last element, if they were loaded so."""
        for operand in operands:
            if isinstance(operand, Dsr):
                held, settings, save_address = self._registers[operand]
                if save_address:
                    self._registers[operand] = (_advanced(held, done), settings, True)


def _advanced(operand: Operand, done: int) -> Operand:
    """`operand` behind its first `done` elements."""
    if isinstance(operand, Mem1d):
        return operand._replace(address=operand.address + done * operand.stride)
    if isinstance(operand, Mem4d) and operand.wrap:
        return operand._replace(first=(operand.first + done) % operand.wrap)
    if isinstance(operand, Mem4d):
        low, _ = bounds(operand, 1, 1)
        return operand._replace(address=low + done * (operand.strides[-1] if operand.strides else 0))
    return operand
