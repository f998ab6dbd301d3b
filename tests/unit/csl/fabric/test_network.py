"""The network by hand: latencies, bandwidths, switches, filters, teardown, swap, reports and errors."""

from dataclasses import replace

import pytest

from cstool.csl.fabric import control
from cstool.csl.fabric.arch import EAST, NORTH, PORTS, RAMP, SOUTH, WEST
from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.network import Network
from cstool.csl.fabric.program import Filter, PEProgram
from cstool.csl.fabric.router import BUFFER, RAMP_REGISTERS
from cstool.csl.fabric.waiting import BufferWait
from cstool.csl.fabric.wavelet import Events, Wavelet
from tests.unit.csl.fabric.network_run import Case, Run
from tests.unit.csl.fabric.waits import config, fabric

NEVER = (False,)


def data(count, color=5):
    return [Wavelet(color, number) for number in range(count)]


def command(*commands, ce_ignore=False, **more):
    """A control wavelet."""
    return Wavelet(5, control.encode(tuple((each, ce_ignore) for each in commands), **more), True)


ADV, NOP = command(control.ADVANCE), command(control.NOP)


def row(width, sends, middle="W>E", last="W>R", color=5, **more):
    """A row of PEs, from the first to the last."""
    configs = {(x, 0, color): config(middle) for x in range(1, width - 1)}
    configs[width - 1, 0, color] = config(last)
    configs[0, 0, color] = config("R>E")
    return Case(width, 1, configs, {(0, 0): sends}, **more)


def got(run, x, y=0):
    """(time, data) of what came to a PE."""
    return [(time, wavelet.data) for time, ax, ay, wavelet in run.arrivals if (ax, ay) == (x, y)]


def ran(case, cycles=200):
    run = Run(case)
    run.until(cycles)
    return run


def all_of(events):
    while events.cycle():
        pass


# --- latency and bandwidth ---


@pytest.mark.parametrize(
    ("case", "x", "expected"),
    [
        # Two cycles up the ramp, one a hop, and two down.
        *((row(hops + 1, data(1)), hops, [(4 + hops, 0)]) for hops in (1, 2, 9)),
        # A CE can send to itself.
        (Case(1, 1, {(0, 0, 5): config("R>R")}, {(0, 0): data(2)}), 0, [(4, 0), (5, 1)]),
        # A row carries one wavelet a cycle, even into the shortest queue.
        *((row(5, data(50), room=room), 4, [(8 + number, number) for number in range(50)]) for room in (2, 6)),
        # Without CE_IGNORE, a control wavelet gets to the CE.
        (row(2, [NOP, *data(1)]), 1, [(5, NOP.data), (6, 0)]),
        (row(2, [command(control.NOP, ce_ignore=True), *data(1)]), 1, [(6, 0)]),
    ],
)
def test_when_a_wavelet_comes(case, x, expected):
    assert got(ran(case), x) == expected


def test_what_nobody_takes_fills_queue_ramp_and_buffers_and_then_stops_the_sender():
    run = ran(row(3, data(50), takes={(2, 0): NEVER}, room=4))
    held = 4 + RAMP_REGISTERS + 2 * BUFFER + BUFFER + RAMP_REGISTERS
    assert len(run.pes[0].wavelets) == 50 - held
    assert len(got(run, 2)) == 4 + RAMP_REGISTERS
    assert {key: len(held) for key, held in run.held().items()} == {
        (0, 0, 5, RAMP): BUFFER + RAMP_REGISTERS,
        (1, 0, 5, WEST): BUFFER,
        (2, 0, 5, WEST): BUFFER,
    }
    assert run.network.in_flight() == held - 4 - RAMP_REGISTERS


def test_multicast_comes_to_all_and_goes_at_the_pace_of_the_slowest():
    case = row(3, data(20), middle="W>RE", takes={(1, 0): (True, False, False)}, room=2)
    run = ran(case)
    assert [number for _, number in got(run, 1)] == [number for _, number in got(run, 2)] == list(range(20))
    times = [time for time, _ in got(run, 2)]
    assert [after - before for before, after in zip(times, times[1:], strict=False)][-12:] == [3] * 12


def two_colors(takes):
    """Two colors from different PEs meet on the link from (1, 0) to (2, 0)."""
    configs = {(0, 0, 5): config("R>E"), (1, 0, 5): config("W>E"), (2, 0, 5): config("W>R")}
    configs |= {(1, 0, 9): config("R>E"), (2, 0, 9): config("W>R")}
    sends = {(0, 0): data(10), (1, 0): data(10, color=9)}
    return Case(3, 1, configs, sends, takes=takes)


def test_colors_take_turns_on_a_link():
    hops = [wavelet.color for _, x, _, port, wavelet in ran(two_colors({})).hops if (x, port) == (1, EAST)]
    assert hops[:16] == [9, 5] * 8  # 9 comes a cycle earlier
    assert len(hops) == 20


def test_a_color_that_stands_does_not_stop_another():
    case = two_colors({})
    case.configs[2, 0, 5] = config("R>R")  # takes nothing from WEST
    run = ran(case)
    assert [number for _, number in got(run, 2)] == list(range(10))
    # Two of color 5 come between, then its buffer is full.
    assert [time for time, _ in got(run, 2)] == [5, 7, *range(9, 17)]


class Silent:
    """Has room for one wavelet, takes none, and remembers when it heard that its ramp is free."""

    def __init__(self, events, room=1):
        self.events = events
        self.heard = []
        self.room = lambda color: room

    def accept(self, wavelet):
        pass

    def ramp_free(self, color):
        self.heard.append((self.events.now, color))


def test_routers_that_have_nothing_to_do_cost_nothing():
    """One event a cycle while a wavelet moves, in a row of a thousand; none when all stand."""
    events = Events()
    ends = {(0, 0): config("R>E"), (999, 0): config("W>R")}
    program = fabric(1000, 1, {5: {(x, 0): config("W>E") for x in range(1000)} | ends})
    network = Network(program, events, [Silent(events) for _ in range(1000)])
    network.send(0, Wavelet(5, 0))
    network.send(500, Wavelet(5, 0))  # waits for ever: its router takes from WEST
    all_of(events)
    assert events.now == 4 + 999
    assert events.done <= 4 + 999
    assert network.in_flight() == 1


def test_what_goes_up_the_ramp_is_one_wavelet_a_cycle_of_all_colors():
    events = Events()
    program = fabric(1, 1, {color: {(0, 0): config("R>R")} for color in (1, 2)})
    pe = Silent(events)
    network = Network(program, events, [pe])
    assert network.can_send(0, 1)
    network.send(0, Wavelet(1, 0))
    assert not network.can_send(0, 2)
    assert not network.can_send(0, 1)
    with pytest.raises(RuntimeError, match="PE 0 sent a wavelet of color 2 without asking can_send"):
        network.send(0, Wavelet(2, 0))
    all_of(events)
    assert pe.heard == [(1, 1), (1, 2)]
    with pytest.raises(RuntimeError, match="PE 0 released a wavelet of color 2 that it never accepted"):
        network.release(0, 2)


# --- switches and control wavelets ---


def star(**more):
    """The middle of a cross sends north, west, east, south by switch position, beginning with west."""
    configs = {(1, 1, 5): config("R>N", "R>W", "R>E", "R>S", current=1, ring=True, **more)}
    configs |= {(1, 0, 5): config("S>R"), (0, 1, 5): config("E>R"), (2, 1, 5): config("W>R"), (1, 2, 5): config("N>R")}
    return configs


@pytest.mark.parametrize("pop", ["no_pop", "always_pop", "pop_on_advance"])
def test_a_control_wavelet_goes_by_the_old_position_and_data_behind_it_by_the_new_one(pop):
    sends = [
        wavelet for number in (0, 2, 4, 6) for wavelet in (command(control.ADVANCE, ce_ignore=True), Wavelet(5, number))
    ]
    run = ran(Case(3, 3, star(pop=pop), {(1, 1): sends}))
    numbers = {(x, y): wavelet.data for _, x, y, wavelet in run.arrivals if not wavelet.control}
    assert numbers == {(2, 1): 0, (1, 2): 2, (1, 0): 4, (0, 1): 6}
    controls = [(x, y, port) for _, x, y, port, wavelet in run.hops if wavelet.control]
    assert controls[:1] == [(1, 1, WEST)]
    assert [port for x, y, port in controls if (x, y) == (1, 1)] == [WEST, EAST, SOUTH, NORTH]
    assert run.network.config(4, 5).current == 1
    # What is told of the switch are the outputs by which data leaves from then on.
    assert [(pe, position, tx) for _, pe, position, tx in run.turns] == [
        (4, position, 1 << port) for position, port in ((2, EAST), (3, SOUTH), (0, NORTH), (1, WEST))
    ]
    for time, x, y, port, wavelet in run.hops:
        latest = [tx for when, _, _, tx in run.turns if when <= time]
        if (x, y) == (1, 1) and not wavelet.control:
            assert latest[-1] == 1 << port


def switches(pop, ring=False, width=4):
    """Each PE of a row has three positions that do the same."""
    routes = ["R>E", *["W>E"] * (width - 2), "W>R"]
    return Case(width, 1, {(x, 0, 5): config(*[each] * 3, pop=pop, ring=ring) for x, each in enumerate(routes)}, {})


@pytest.mark.parametrize(
    ("pop", "sends", "ends"),
    [
        ("no_pop", [(control.ADVANCE,)], [1, 1, 1, 1]),
        ("no_pop", [(control.NOP, control.ADVANCE)], [0, 0, 0, 0]),
        ("always_pop", [(control.ADVANCE,)], [1, 0, 0, 0]),
        ("always_pop", [(control.NOP, control.ADVANCE, control.NOP, control.ADVANCE)], [0, 1, 0, 1]),
        ("always_pop", [(control.ADVANCE,) * 3, (control.ADVANCE, control.RESET)], [2, 0, 1, 0]),
        ("pop_on_advance", [(control.ADVANCE,)] * 2, [2, 0, 0, 0]),
        # The first stays at its last position, and hands commands on.
        ("pop_on_advance", [(control.ADVANCE,)] * 3, [2, 1, 0, 0]),
        ("pop_on_advance", [(control.NOP, control.ADVANCE)], [0, 0, 0, 0]),
        ("no_pop", [(control.ADVANCE,)] * 5, [2, 2, 2, 2]),
        ("no_pop", [(control.ADVANCE,)] * 2 + [(control.RESET,)], [0, 0, 0, 0]),
        ("no_pop ring", [(control.ADVANCE,)] * 4, [1, 1, 1, 1]),
    ],
)
def test_which_router_executes_which_command(pop, sends, ends):
    case = switches(pop.removesuffix(" ring"), ring=pop.endswith("ring"))
    case.sends = {(0, 0): [command(*each) for each in sends]}
    run = ran(case)
    assert [run.network.config(pe, 5).current for pe in range(4)] == ends
    told = {pe: position for _, pe, position, _ in run.turns}
    assert [told.get(pe, 0) for pe in range(4)] == ends


def test_the_popped_payload_is_what_the_ce_gets():
    case = replace(switches("always_pop", width=2), sends={(0, 0): [command(control.ADVANCE, task=9, data=77)]})
    ((_, payload),) = got(ran(case), 1)
    assert control.decode(payload) == (control.NOP, False, 9, 77)


def test_a_wavelet_from_a_port_that_the_position_does_not_take_waits_for_the_position():
    """Two PEs send to one, first the western one, which then hands over."""
    configs = {(0, 0, 5): config("R>E"), (1, 0, 5): config("W>R", "E>R"), (2, 0, 5): config("R>W")}
    sends = {(0, 0): [*data(3), ADV], (2, 0): [Wavelet(5, 100 + number) for number in range(5)]}
    run = ran(Case(3, 1, configs, sends, start={(0, 0): 30}))
    times, numbers = zip(*got(run, 1), strict=True)
    assert numbers == (0, 1, 2, ADV.data, 100, 101, 102, 103, 104)
    assert times == tuple(range(35, 44))


# --- teardown ---


def test_teardown_stops_a_color_calls_the_ce_and_ends_when_the_program_says_so():
    case = row(
        3, [*data(2), command(control.TEARDOWN, control.NOP, control.NOP, ce_ignore=True), Wavelet(5, 2)], pause=10
    )
    case.configs[0, 0, 5] = config("R>E", pop="always_pop")
    run = Run(case)
    run.until(10)
    # The command is the first router's alone. Its CE hears of it after the ramp.
    assert run.network.teardowns(0) == (5,)
    assert run.network.teardowns(1) == ()
    assert run.network.config(0, 5).teardown
    (wait,) = run.network.waiting()
    assert wait == BufferWait(0, RAMP, 5, (Wavelet(5, 2),), 0, (), (), "color 5 is in teardown")
    run.until(100)
    # TEARDOWN leaves at 4, is heard of at 6, ended at 16, and the wavelet leaves at 17.
    assert got(run, 2) == [(6, 0), (7, 1), (21, 2)]
    assert run.network.teardowns(0) == ()


def test_a_color_may_begin_in_teardown():
    case = row(2, data(1))
    case.configs[1, 0, 5] = config("W>R", teardown=True)
    run = Run(case)
    assert run.network.teardowns(1) == (5,)
    run.events.at(20, run.network.end_teardown, 1, 5)
    run.until(40)
    assert got(run, 1) == [(23, 0)]
    run.network.end_teardown(1, 5)  # again: nothing
    assert run.network.config(1, 5) == config("W>R")


# --- filters ---


INDEXED = [Wavelet(5, index << 16 | 7) for index in range(6)]


@pytest.mark.parametrize(
    ("kept", "sends", "passed"),
    [
        # A range passes indices within, and control wavelets.
        *(
            (Filter(kind, (2, 4)), [*INDEXED, ADV], [2 << 16 | 7, 3 << 16 | 7, 4 << 16 | 7, ADV.data])
            for kind in ("range", "sparse_range")
        ),
        # A counter passes the first of every so many, and counts control wavelets or passes them.
        (Filter("counter", (0, 3, 1)), data(9), [0, 1, 4, 5, 8]),
        (Filter("counter", (2, 3, 1)), data(6), [2, 3]),
        (Filter("counter", (0, 3, 1), True), [ADV, *data(5)], [ADV.data, 0, 3, 4]),
        (Filter("counter", (0, 3, 1), False), [ADV, *data(5)], [ADV.data, 0, 1, 4]),
    ],
)
def test_a_filter_passes(kept, sends, passed):
    """In the middle of a row, down the ramp; all come to its end."""
    case = row(3, sends, middle="W>RE")
    case.configs[1, 0, 5] = config("W>RE", filter=kept)
    run = ran(case)
    assert ([number for _, number in got(run, 1)], len(got(run, 2))) == (passed, len(sends))


def test_what_does_not_go_down_the_ramp_needs_no_room():
    case = row(3, data(50), middle="W>RE", room=2, takes={(1, 0): NEVER})
    case.configs[1, 0, 5] = config("W>RE", filter=Filter("counter", (0, 100, 0)))
    run = ran(case)
    assert (len(got(run, 1)), len(got(run, 2))) == (1, 50)
    run = ran(row(2, [command(control.NOP, ce_ignore=True)] * 20, takes={(1, 0): NEVER}, room=1))
    assert (run.network.in_flight(), run.pes[0].wavelets) == (0, [])


# --- color swap ---


def test_a_swapped_color_alternates_along_a_row_and_keeps_its_color_down_the_ramp():
    """As the documentation of color swap tells: red goes on as blue, blue as red."""
    configs = {}
    for color in (0, 1):
        configs |= {(x, 0, color): config("W>RE", swap=1) for x in (1, 2)}
        configs |= {(0, 0, color): config("R>E"), (3, 0, color): config("W>R")}
    run = ran(Case(4, 1, configs, {(0, 0): data(1, color=0)}))
    assert [wavelet.color for _, _, _, wavelet in sorted(run.arrivals)] == [0, 1, 0]


def test_with_both_swaps_a_color_is_swapped_down_the_ramp_too():
    configs = {(0, 0, 6): config("R>RE", swap=3), (1, 0, 7): config("W>R", swap=3)}
    run = ran(Case(2, 1, configs, {(0, 0): data(9, color=6)}))
    assert {(x, wavelet.color) for _, x, _, wavelet in run.arrivals} == {(0, 7), (1, 6)}
    assert len(run.arrivals) == 18


def test_a_swap_in_y_does_not_count_in_x():
    configs = {(0, 0, 6): config("R>ES", swap=2), (1, 0, 6): config("W>R"), (0, 1, 7): config("N>R")}
    run = ran(Case(2, 2, configs, {(0, 0): data(1, color=6)}))
    assert sorted((x, y, wavelet.color) for _, x, y, wavelet in run.arrivals) == [(0, 1, 7), (1, 0, 6)]


# --- configs at run time ---


def test_a_config_changes_from_the_next_cycle_on_and_wavelets_in_buffers_follow_it():
    case = row(2, data(8))
    case.configs[0, 1, 5] = config("N>R")
    case.height = 2
    run = Run(case)
    run.events.at(4, run.network.set_config, 0, 5, config("R>S"))
    run.until(5)
    assert run.network.config(0, 5) == config("R>S")  # set in this cycle
    run.until(60)
    # 0, 1 and 2 left at 2, 3 and 4.
    assert got(run, 1) == [(5, 0), (6, 1), (7, 2)]
    assert got(run, 0, 1) == [(8 + number, 3 + number) for number in range(5)]


def test_a_filter_that_stays_goes_on_counting_when_the_config_changes():
    kept = Filter("counter", (0, 100, 0))
    for later, passed in ((kept, [0]), (Filter("counter", (0, 100, 1)), [0, 5, 6])):
        case = row(2, data(10))
        case.configs[1, 0, 5] = config("W>R", filter=kept)
        case.changes = [(7, 1, 0, 5, config("W>R", ring=True, filter=later))]
        assert [number for _, number in got(ran(case), 1)] == passed


def test_a_teardown_that_is_set_and_ended_in_one_cycle_is_none():
    run = Run(row(2, data(1), start={(0, 0): 5}))
    run.until(2)
    run.network.set_config(1, 5, config("W>R", teardown=True))
    assert run.network.teardowns(1) == (5,)
    run.network.end_teardown(1, 5)
    assert run.network.teardowns(1) == ()
    run.until(30)
    assert got(run, 1) == [(10, 0)]


def test_a_queue_may_be_bound_before_the_first_wavelet_comes_down():
    """A filter keeps the first ones back, and the PE binds its queue meanwhile."""
    case = row(2, data(20), room=0)
    case.configs[1, 0, 5] = config("W>R", filter=Filter("range", (1, 1)))
    case.sends[0, 0].append(Wavelet(5, 1 << 16))
    run = Run(case)
    run.until(10)
    case.room = 1
    run.until(60)
    assert got(run, 1) == [(25, 1 << 16)]


def test_a_pe_hears_once_a_cycle_that_a_ramp_is_free():
    """Its sends never stop, and it asks again after each."""
    events = Events()

    class Eager(Silent):
        left = 30

        def accept(self, wavelet):
            network.release(0, wavelet.color)

        def ramp_free(self, color):
            super().ramp_free(color)
            self.pump()

        def pump(self):
            while self.left and network.can_send(0, 5):
                network.send(0, Wavelet(5, 0))
                self.left -= 1

    pe = Eager(events)
    network = Network(fabric(1, 1, {5: {(0, 0): config("R>R")}}), events, [pe])
    pe.pump()
    all_of(events)
    assert not pe.left
    assert len(pe.heard) == len(set(pe.heard))


def test_a_color_can_be_configured_at_run_time():
    case = row(2, data(1), start={(0, 0): 10})
    del case.configs[1, 0, 5]
    run = Run(case)
    assert run.network.config(1, 5) is None
    run.events.at(3, run.network.set_config, 1, 5, config("W>R"))
    run.until(30)
    assert got(run, 1) == [(15, 0)]


# --- reports ---


def test_waiting_says_what_each_buffer_waits_for():
    case = row(3, data(20), middle="W>RE", takes={(2, 0): NEVER}, room=1)
    run = ran(case)
    heads = [wait.wavelets[0] for wait in run.network.waiting()]
    assert [(wait.pe, PORTS[wait.port], wait.outputs, wait.blocked, wait.reason) for wait in run.network.waiting()] == [
        (0, "RAMP", (EAST,), (EAST,), "the buffer of PE 1.0 for color 5 from WEST is full"),
        (1, "WEST", (RAMP, EAST), (EAST,), "the buffer of PE 2.0 for color 5 from WEST is full"),
        (2, "WEST", (RAMP,), (RAMP,), "the input queue of PE 2.0 for color 5 is full"),
    ]
    assert heads == [Wavelet(5, 7), Wavelet(5, 5), Wavelet(5, 3)]


@pytest.mark.parametrize(
    ("route", "reason"),
    [
        ("RN>R", "position 1 takes from RAMP and NORTH only"),
        (">R", "position 1 takes from nowhere only"),
    ],
)
def test_waiting_says_which_ports_a_position_takes_from(route, reason):
    case = row(2, data(1))
    case.configs[1, 0, 5] = config("W>R", route, current=1)
    assert ran(case).network.waiting() == [BufferWait(1, WEST, 5, (Wavelet(5, 0),), 1, (), (), reason)]


def test_what_is_in_flight_was_sent_and_has_not_come():
    run = Run(row(3, data(9)))
    for cycle in range(2, 30):
        run.until(cycle)
        assert run.network.in_flight() == 9 - len(run.pes[0].wavelets) - len(run.arrivals)
        assert {wait.reason for wait in run.network.waiting()} <= {"it moves in this cycle"}
    assert len(run.arrivals) == 9


# --- errors ---


def alone(route):
    return Case(1, 1, {(0, 0, 5): config(route)}, {(0, 0): data(1)})


NO_ROUTE = "a router must have a route for each color that comes to it, got a wavelet of color"
OFF = "routes must stay within the rectangle of 1 x 1 PEs, got a wavelet of color 5 to the"
ONE = "hint: @set_color_config(0, 0, ...) gives it one"
NO_QUEUE = (
    "a color that goes down the ramp must have an input queue, got a wavelet of color 5 from WEST to RAMP, and pe.csl "
    "has none for it\nhint: bind an input queue to the color there, or take RAMP out of its tx at this PE"
)
TWO_ROUTES = (
    "a color must come from one port at a time, got color 5 used by two routes in conflict, from WEST and from EAST in "
    "cycle 3\nhint: routers do not choose between two inputs of a color: use two colors, or switch positions that take "
    "turns"
)
CONFLICT = Case(
    3,
    1,
    {(0, 0, 5): config("R>E"), (1, 0, 5): config("WE>R"), (2, 0, 5): config("R>W")},
    {(0, 0): data(5), (2, 0): data(5)},
)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            Case(2, 1, {(0, 0, 5): config("R>E")}, {(0, 0): data(1)}),
            f"PE 1.0: {NO_ROUTE} 5 from the WEST and no route\nhint: @set_color_config(1, 0, ...) gives it one; "
            "or the PE to the WEST must not send the color this way",
        ),
        (row(2, data(1, color=6)), f"PE 0.0: {NO_ROUTE} 6 from its own PE and no route\n{ONE}"),
        *(
            (alone(f"R>{port[0]}"), f"PE 0.0: {OFF} {port}\nhint: take {port} out of the color's tx at this PE")
            for port in ("WEST", "EAST", "NORTH", "SOUTH")
        ),
        (row(2, data(1), room=0), f"PE 1.0: {NO_QUEUE}"),
        (CONFLICT, f"PE 1.0: {TWO_ROUTES}"),
    ],
)
def test_what_ends_a_simulation(case, message):
    with pytest.raises(SimulationError) as caught:
        ran(case)
    assert str(caught.value) == message


def test_what_is_no_error():
    # What comes one after the other; a route off the rectangle that nothing takes.
    assert len(ran(replace(CONFLICT, start={(2, 0): 5})).arrivals) == 10
    ran(Case(1, 1, {(0, 0, 5): config("R>W"), (0, 0, 6): config("R>R")}, {(0, 0): data(1, color=6)}))


def test_a_ramp_of_a_pe_without_a_program():
    events = Events()
    program = fabric(1, 1, {5: {(0, 0): config("R>R")}}, tiles=[[-1]], programs=(PEProgram("pe.csl", "wse2", ""),))
    network = Network(program, events, [Silent(events, room=0)])
    network.send(0, Wavelet(5, 0))
    with pytest.raises(SimulationError) as caught:
        events.cycle()
    assert caught.value.message == (
        "PE 0.0: a color that goes down the ramp must have an input queue, "
        "got a wavelet of color 5 from RAMP to RAMP, and its PE has no program"
    )
