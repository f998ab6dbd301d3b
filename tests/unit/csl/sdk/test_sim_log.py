"""The lines of `sim.log`, and their order."""

from cstool.csl.sdk.sim_log import SimLog


def test_lines_of_programs_in_one_cycle_are_in_order_of_pes():
    log = SimLog()
    log.note(0, "host: launch go()")
    log.say(22, 5, 27, "PE 5 first")
    log.say(22, 5, 25, "PE 5 again")
    log.say(22, 2, 23, "PE 2")
    log.say(22, 7, 30, "PE 7")
    log.say(23, 0, 24, "PE 0, a cycle later")
    assert str(log).splitlines() == [
        "@0 host: launch go()",
        "@23 PE 2",
        "@27 PE 5 first",
        "@25 PE 5 again",
        "@30 PE 7",
        "@24 PE 0, a cycle later",
    ]


def test_a_line_of_the_host_stays_where_it_is():
    log = SimLog()
    log.say(22, 5, 22, "PE 5")
    log.note(22, "host: two\nlines")
    log.say(22, 2, 22, "PE 2")
    assert log.lines == [(22, "PE 5"), (22, r"host: two\nlines"), (22, "PE 2")]
