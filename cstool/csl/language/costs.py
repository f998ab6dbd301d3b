"""Costs of scalar code: cycles, and bytes of code, for each act of a statement.

A PE issues one scalar instruction a cycle and its SRAM answers in the next (P13; sources in `docs/csl/csl.md`). A
division of float32 is a routine of about 50 cycles (P12). The rest is this project's assumption, and one place to
change it: an instruction takes 4 bytes; an integer's multiplication is one instruction, its division 20 cycles; a call
is a jump there and one back. A loop's turn costs its count, its test and its jump; of P11's 16 cycles for a call of
`@fmacs` in a loop, that leaves 13 for the operation itself and the change of its DSD.
"""

LOAD = 1
STORE = 1
ALU = 1
"""+ - * & | ^ << >>, a comparison, a conversion, with its rounding."""
BRANCH = 1
TURN = 3
"""A turn of a loop: count, test, jump."""
CALL = 2
RETURN = 1
DIVIDE_F32 = 50
DIVIDE_F16 = 25
DIVIDE_INT = 20
TASK_CALL = 1
"""@activate, @block, @unblock."""
DSD_CHANGE = 2
"""@increment_dsd_offset and the like; @load_to_dsr."""
INSTRUCTION_BYTES = 4
