"""A report on a deadlock, the state of a simulation without a possible move, for people.

It draws the circle of nodes that wait for each other, if there is one, and names the end of every other wait.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice

from cstool.csl.fabric.circles import circular_parts, shortest_circle
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.wait_graph import Config, WaitGraph
from cstool.csl.fabric.waiting import Node, Wait
from cstool.foundation.plain_text import one_line
from cstool.foundation.words import counted

NOTHING_LEFT = (
    "no operation is under way and no task is activated: a function that the host launches must call "
    "unblock_cmd_stream(), or start what calls it"
)
WIDTH = 100
"""columns of the text"""
MOST_ENDS = 4
"""ends of chains that are told in full"""
MOST_SHOWN = 12
"""nodes of a circle or a chain that are shown; of a longer one, its beginning and its end"""
MOST_ROUTERS = 3
"""routers in a row that are told in full; of more, the first and the last"""
MOST_WAITS = 20_000
"""waits that are looked at: on a whole wafer, the first ones tell enough"""


def deadlock_report(
    program: FabricProgram, time: int, waits: Iterable[Wait], config: Config | None = None, host: Sequence[str] = ()
) -> str:
    """Return the report, lines of text without a last line end.

    Args:
        program: the simulated program
        time: cycle of the last event
        waits: all of `Network.waiting()`, and of `PE.waiting()` of all PEs
        config: of routers as they are now: `Network.config`; None for the program's initial configs
        host: waits of the host, a line each
    """
    graph = WaitGraph(program, waits, config)
    pes = {wait.pe for wait in graph.waits.values()}
    of_all = f"{len(pes):,} of {counted(program.width * program.height, 'PE')}"
    report = [f"deadlock at cycle {time:,}: nothing can move any more; {of_all} {'waits' if len(pes) == 1 else 'wait'}"]
    report += [line for text in host for line in _filled(f"the host: {text}", "", "    ")]
    if not graph.waits:
        report += _filled(NOTHING_LEFT, "", "  ")
    starts = list(islice(graph.waits, MOST_WAITS))
    if len(starts) < len(graph.waits):
        report.append(f"(of {len(graph.waits):,} waits the first {len(starts):,} were looked at)")
    parts = circular_parts(starts, graph.targets)
    # A circle of routes alone is one that nothing leads into: an end.
    through = [[node for node in part if node in graph.waits] for part in parts]
    circles = [shortest_circle(part, graph.targets, own) for part, own in zip(parts, through, strict=True) if own]
    if circles:
        report += ["", *_circle(graph, min(circles, key=len), len(circles))]
    report += _ends(graph, starts, {node: bool(own) for part, own in zip(parts, through, strict=True) for node in part})
    return "\n".join(report)


def _circle(graph: WaitGraph, circle: list[Node], count: int) -> list[str]:
    """Draw a circle from top to bottom and back: each node waits for the next."""
    shown = [node for node in circle if node[0] != "route"]
    # It begins with an operation, if there is one: operations stand in the source.
    first = min(range(len(shown)), key=lambda number: (shown[number][0] != "thread", shown[number]))
    shown = shown[first:] + shown[:first]
    lines = ["each waits for the next, round in a circle"]
    for number, block in enumerate(_blocks(graph, shown, WIDTH - 6)):
        if number:
            lines += [" |      |", " |      v"]
        lines += [f" {'+->' if not number and not place else '|  '}  {text}" for place, text in enumerate(block)]
    lines += [" |      |", " +------+"]
    more = [] if count == 1 else [f"there {_are(count - 1, 'more circle')} like it, or longer"]
    return lines + more + _filled(f"look at {graph.circle_advice(circle)}", "", "  ")


def _are(count: int, noun: str) -> str:
    return f"{'is' if count == 1 else 'are'} {counted(count, noun)}"


def _ends(graph: WaitGraph, starts: Sequence[Node], circular: Mapping[Node, bool]) -> list[str]:
    """Tell where the waits of nodes outside circles end, ends that most PEs wait for first.

    Args:
        graph: the graph of all waits
        starts: reported nodes
        circular: nodes of circles, and whether the circle of each has a reported node
    """
    known: dict[Node, tuple[Node, int]] = {}
    groups: dict[tuple[object, ...], list[Node]] = {}
    behind: set[int] = set()
    for start in starts:
        end, _ = _end_of(graph, start, circular, known)
        if not circular.get(end):
            groups.setdefault(graph.signature(end), []).append(start)
        elif start not in circular:
            behind.add(graph.waits[start].pe)
    lines = ["", f"behind the circle {_wait(len(behind))}"] if behind else []
    ordered = sorted(groups.values(), key=lambda group: -len({graph.waits[start].pe for start in group}))
    for group in ordered[:MOST_ENDS]:
        lines += ["", *_end(graph, group, known)]
    if rest := ordered[MOST_ENDS:]:
        waiting = {graph.waits[start].pe for group in rest for start in group}
        lines += ["", f"and {counted(len(rest), 'other end')}, for which {_wait(len(waiting))}"]
    return lines


def _wait(pes: int) -> str:
    return f"{counted(pes, 'PE')} {'waits' if pes == 1 else 'wait'}"


def _end_of(
    graph: WaitGraph, start: Node, circular: Mapping[Node, bool], known: dict[Node, tuple[Node, int]]
) -> tuple[Node, int]:
    """Return the node where the chain from a node ends or meets a circle, and the number of steps to it."""
    path = []
    node = start
    while node not in known:
        targets = graph.targets(node)
        if node in circular or not targets:
            known[node] = (node, 0)
            break
        path.append(node)
        node = targets[0]
    end, rest = known[node]
    for length, each in enumerate(reversed(path), start=rest + 1):
        known[each] = (end, length)
    return known[start]


def _end(graph: WaitGraph, group: Sequence[Node], known: dict[Node, tuple[Node, int]]) -> list[str]:
    """Tell one end, with a short chain that leads to it as an example."""
    # An operation stands in the source, so it is the best example; the end itself is none, if there is another.
    start = min(group, key=lambda node: (known[node][1] == 0, node[0] != "thread", known[node][1]))
    chain = [start]
    while chain[-1] != known[start][0]:
        chain.append(graph.targets(chain[-1])[0])
    shown = [node for node in chain[:-1] if node[0] != "route"] + chain[-1:]
    waiting = {graph.waits[node].pe for node in group}
    ends = {known[node][0] for node in group}
    this = "this" if len(ends) == 1 else f"{len(ends):,} ends like this one"
    lines = [f"{_wait(len(waiting))}, in the end, for {this}"]
    for number, block in enumerate(_blocks(graph, shown, WIDTH - 4)):
        lines += ["      |", "      v"] if number else []
        lines += [f"    {text}" for text in block]
    return lines + _filled(f"look at {graph.advice(shown[-1])}", "", "  ")


def _blocks(graph: WaitGraph, nodes: Sequence[Node], width: int) -> list[list[str]]:
    """Return a block of lines for each node; the middle of many routers in a row, or of very many nodes, is counted."""
    blocks: list[list[str]] = []
    for is_router, run in groupby(nodes, lambda node: node[0] == "buffer"):
        found = list(run)
        if is_router and len(found) > MOST_ROUTERS:
            between = [f"... {counted(len(found) - 2, 'more router')} on the way ..."]
            blocks += [_block(graph, found[0], width), between, _block(graph, found[-1], width)]
        else:
            blocks += [_block(graph, node, width) for node in found]
    if len(blocks) > MOST_SHOWN:
        half = MOST_SHOWN // 2
        blocks[half:-half] = [[f"... {counted(len(blocks) - 2 * half, 'more step')} ..."]]
    return blocks


def _block(graph: WaitGraph, node: Node, width: int) -> list[str]:
    who, what = graph.describe(node)
    return _filled(f"{who}  {what}", "", " " * (len(who) + 2), width)


def _filled(text: str, first: str, hanging: str, width: int = WIDTH) -> list[str]:
    return textwrap.wrap(
        one_line(text),
        width,
        initial_indent=first,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )
