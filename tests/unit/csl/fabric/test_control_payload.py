"""Payloads of control wavelets: what is written is read, command by command."""

from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric import control
from tests.examples import examples

commands = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=control.MAX_COMMANDS)


def test_one_command_is_above_its_task_and_data() -> None:
    payload = control.encode(((control.ADVANCE, True),), task=40, data=0xBEEF)
    assert payload == 0b101 << 22 | 40 << 16 | 0xBEEF


@examples(60)
@given(commands, st.integers(0, 63), st.integers(0, 0xFFFF))
def test_commands_come_one_after_the_other(several: list[tuple[int, bool]], task: int, data: int) -> None:
    payload = control.encode(tuple(several), task, data if len(several) == 1 else 0)
    assert payload < 1 << 32
    for command, ignore in [*several, (control.NOP, False), (control.NOP, False)]:
        kept = data if len(several) == 1 else 0
        assert control.decode(payload) == (command, ignore, task, kept)
        payload = control.pop(payload)


def test_a_teardown_for_one_router_is_what_the_vendor_says() -> None:
    assert control.encode(((control.TEARDOWN, True), *((control.NOP, True),) * 7)) == 0x9DF9249


def test_commands_behind_two_that_say_nothing_are_marked() -> None:
    assert control.encode(((1, False), (0, False), (0, False), (1, False))) == 1 << 31 | 1 << 22 | 31 << 16 | 1 << 1


def test_eight_commands_packed_by_hand_need_no_mark() -> None:
    several = ((control.ADVANCE, True), (control.RESET, False), (control.NOP, True), *((control.ADVANCE, True),) * 5)
    marked = control.encode(several, control.NO_TASK)
    bare = marked & ~(1 << 31)
    for command, ignore in several:
        assert control.decode(bare)[:3] == (command, ignore, control.NO_TASK)
        bare = control.pop(bare)


def test_bits_of_eight_commands_lie_in_two_parts() -> None:
    """Three bits a command: eight of them from bit 22 on, sixteen from bit 0 on. So the third command is in both."""
    third, last = ((control.NOP, False),) * 2 + ((control.ADVANCE, True),), ((control.NOP, False),) * 7 + ((2, True),)
    assert control.encode(third) & ~(1 << 31) == 0b01 << 28 | 31 << 16 | 1
    assert control.encode(last) & ~(1 << 31) == 31 << 16 | 0b110 << 13
