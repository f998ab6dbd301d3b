"""<control>: payloads as the simulator's routers read them."""

from pathlib import Path

from cstool.fabric import control
from tests.unit.csl.one_pe import OnePE

TEXT = """
const ctrl = @import_module("<control>");
const op = ctrl.opcode;
const advance = ctrl.encode_single_payload(op.SWITCH_ADV, true, {}, 0);
const many = ctrl.encode_payload([4]op{ op.NOP, op.SWITCH_ADV, op.SWITCH_RST, op.TEARDOWN },
                                 [4]bool{ true, false, true, false }, @get_control_task_id(40));
const two = ctrl.encode_payload([2]op{ op.SWITCH_ADV, op.SWITCH_RST }, [2]bool{ true, true }, .{});
var payloads = @zeros([6]u32);
"""
BODY = """
  var data: u16 = 0xbeef;
  payloads[0] = advance;
  payloads[1] = ctrl.encode_single_payload(op.SWITCH_RST, false, @get_control_task_id(41), data);
  payloads[2] = ctrl.encode_control_task_payload(@get_control_task_id(42));
  payloads[3] = many;
  payloads[4] = two;
  payloads[5] = ctrl.encode_single_payload(op.TEARDOWN, data == 0xbeef, {}, 1);
"""


def test_payloads(tmp_path: Path) -> None:
    found = OnePE(tmp_path, TEXT, BODY)["payloads"].tolist()
    assert found == [
        control.encode(((control.ADVANCE, True),)),
        control.encode(((control.RESET, False),), 41, 0xBEEF),
        control.encode((), 42),
        control.encode(((0, True), (1, False), (2, True), (3, False)), 40),
        control.encode(((1, True), (2, True))),
        control.encode(((control.TEARDOWN, True),), data=1),
    ]
    # documented: data is the lower half
    assert found[1] & 0xFFFF == 0xBEEF
