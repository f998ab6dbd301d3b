"""Check routes one hop at a time, by what the docstring of Route says and nothing else of the compiler's.

The corners of a route are those of its first lane. The others lie to its right, one PE each, seen along the path, and
keep that order at corners; a path of a single PE counts as going east.
"""

from collections.abc import Iterator, Mapping, Sequence

from cstool.model.ir import Region, Route

PE = tuple[int, int]
WEST_EDGE = -1


def lanes_of(route: Route) -> Iterator[list[PE]]:
    """Return the PEs of each lane, one hop after the other."""
    corners = route.path
    if not corners:
        raise ValueError("no path")
    headings = []
    for (x, y), (next_x, next_y) in zip(corners, corners[1:], strict=False):
        if (x == next_x) == (y == next_y):
            raise ValueError(f"from {(x, y)} to {(next_x, next_y)} is neither across nor down")
        headings.append(((next_x > x) - (next_x < x), (next_y > y) - (next_y < y)))
    headings = headings or [(1, 0)]
    for lane in range(route.lanes):
        # Facing (dx, dy) with y counted south, the right hand points to (-dy, dx).
        moved = []
        for number, (x, y) in enumerate(corners):
            around = {headings[max(0, number - 1)], headings[min(number, len(headings) - 1)]}
            moved.append((x - lane * sum(dy for _, dy in around), y + lane * sum(dx for dx, _ in around)))
        hops = [moved[0]]
        for (dx, dy), (x, y), end in zip(headings, moved, moved[1:], strict=False):
            steps = (end[0] - x) * dx + (end[1] - y) * dy
            hops += [(x + dx * n, y + dy * n) for n in range(1, steps + 1)]
            if hops[-1] != end:
                raise ValueError(f"lane {lane} has no room to turn before {end}")
        yield hops


def _has(region: Region, pe: PE) -> bool:
    return 0 <= pe[0] - region.x < region.width and 0 <= pe[1] - region.y < region.height


def _is_at_border(region: Region, pe: PE) -> bool:
    across, down = pe[0] - region.x, pe[1] - region.y
    return _has(region, pe) and (across in (0, region.width - 1) or down in (0, region.height - 1))


def faults(
    regions: Sequence[Region],
    routes: Sequence[Route],
    size: tuple[int, int],
    colors: Sequence[int],
    kernel_colors: Mapping[str, int],
) -> list[str]:
    """Return what is wrong with routes on a replica of this (width, height); nothing if they are legal."""
    found = []
    users: dict[tuple[PE, int], str] = {}
    links: dict[tuple[PE, PE, int], str] = {}
    for route in routes:
        who = f"{route.kind} {route.name} {route.source}->{route.target}"
        if route.color not in colors:
            found.append(f"{who}: color {route.color} is not allowed")
        if route.color in kernel_colors.values():
            found.append(f"{who}: color {route.color} belongs to kernels")
        if route.lanes < 1:
            found.append(f"{who}: no lanes")
        try:
            lanes = list(lanes_of(route))
        except ValueError as error:
            found.append(f"{who}: {error}")
            continue
        for number, hops in enumerate(lanes):
            where = f"{who}, lane {number}"
            if route.source == WEST_EDGE:
                if hops[0][0] != 0:
                    found.append(f"{where}: begins at {hops[0]}, not at the west edge")
            elif not _is_at_border(regions[route.source], hops[0]):
                found.append(f"{where}: begins at {hops[0]}, not at the border of its source")
            if not _has(regions[route.target], hops[-1]):
                found.append(f"{where}: ends at {hops[-1]}, outside its target")
            outside = [pe for pe in hops if not (0 <= pe[0] < size[0] and 0 <= pe[1] < size[1])]
            if outside:
                found.append(f"{where}: leaves the replica at {outside[0]}")
            if len(set(hops)) < len(hops):
                found.append(f"{where}: crosses itself")
            for pe in hops:
                if (other := users.setdefault((pe, route.color), where)) != where:
                    found.append(f"{where}: color {route.color} at {pe} is that of {other}")
            for pe, after in zip(hops, hops[1:], strict=False):
                if (other := links.setdefault((pe, after, route.color), where)) != where:
                    found.append(f"{where}: the link {pe} to {after} carries color {route.color} for {other}")
    return found
