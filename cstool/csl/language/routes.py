"""The config of a color at a router, from its struct in CSL (SDK 2.10 documentation, "@set_color_config")."""

from cstool.csl.fabric.arch import PORTS
from cstool.csl.fabric.filters import LIMITS
from cstool.csl.fabric.program import ColorConfig, Filter, Route
from cstool.csl.language import types, values
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, EnumType
from cstool.csl.language.values import Value, describe
from cstool.foundation.words import did_you_mean

POP_MODES = ("no_pop", "always_pop", "pop_on_advance")
_COUNTER_TOP = 0xFFFF


def known_fields(value: Value, title: str, known: tuple[str, ...], place: Place, verb: str = "is") -> dict[str, Value]:
    """The fields of a struct; `title` and `verb` begin the message of another value: ".routes is", "@get_dsd takes".

    Raises:
        CslError: it is no struct, or has a field that is not one of the `known` ones.
    """
    if value[0] == types.VOID:
        return {}
    fields = values.fields_of(value)
    if fields is None:
        raise CslError(f"{title} {verb} a struct, got {describe(value)}", place)
    for name in fields:
        if name not in known:
            raise CslError(f"{title} has the fields {', '.join(known)}, got .{name}", place, did_you_mean(name, known))
    return fields


def ports_of(value: Value, what: str, place: Place) -> int:
    """A bit set of ports: `WEST`, or `.{ WEST, RAMP }`.

    Raises:
        CslError: it is no set of ports, or names a port twice.
    """
    type_, data = value
    if type_ == types.DIRECTION:
        return 1 << int(data)
    if isinstance(type_, ArrayType) and type_.element == types.DIRECTION:
        numbers = list(data)
    else:
        fields = values.fields_of(value)
        if fields is None or any(field[0] != types.DIRECTION for field in fields.values()):
            raise CslError(f"{what} is a direction or several, .{{ WEST, RAMP }}, got {describe(value)}", place)
        numbers = [field[1] for field in fields.values()]
    result = 0
    for number in numbers:
        if result >> number & 1:
            raise CslError(f"{what} names a direction once, got {PORTS[number]} twice", place)
        result |= 1 << number
    return result


def _number(value: Value, what: str, low: int, high: int, place: Place) -> int:
    if not types.is_int(value[0]) or not low <= value[1] <= high:
        raise CslError(f"{what} is {low} to {high}, got {describe(value)}", place)
    return int(value[1])


def _flag(fields: dict[str, Value], name: str, place: Place) -> bool:
    value = fields.get(name, values.FALSE)
    if value[0] != types.BOOL:
        raise CslError(f".{name} is true or false, got {describe(value)}", place)
    return bool(value[1])


def choice(value: Value, what: str, known: tuple[str, ...], place: Place) -> str:
    """One of several words: `.{ .no_pop = true }`, `.no_pop`, or a member of an enum.

    Raises:
        CslError: it is none of them, or several.
    """
    type_, data = value
    if isinstance(type_, EnumType):
        data, type_ = type_.member(data), types.ENUM_LITERAL
    if type_ in (types.ENUM_LITERAL, types.STRING):
        chosen = [str(data)]
    else:
        chosen = [name for name, field in (values.fields_of(value) or {}).items() if field[1]]
    if len(chosen) != 1 or chosen[0] not in known:
        near = did_you_mean(chosen[0], known) if len(chosen) == 1 else None
        raise CslError(f"{what} is one of {', '.join(known)}, got {describe(value)}", place, near)
    return chosen[0]


def color_config(value: Value, place: Place) -> ColorConfig:
    """The config that a struct describes. `.tx = .{}` is a route that ends here: wavelets are dropped.

    Raises:
        CslError: a field is unknown, wrong, or missing; a position takes from nowhere.
    """
    known = ("routes", "switches", "filter", "teardown", "color_swap_x", "color_swap_y")
    fields = known_fields(value, "a color's config", known, place)
    either = ("rx", "tx", "color_swap_x", "color_swap_y")
    routes = known_fields(fields.get("routes", values.VOID), ".routes", either, place)
    rx = ports_of(routes["rx"], ".rx", place) if "rx" in routes else 0
    tx = ports_of(routes["tx"], ".tx", place) if "tx" in routes else 0
    if not ("rx" in routes or "tx" in routes or _flag(fields, "teardown", place)):
        raise CslError("a route needs .rx or .tx, where wavelets come from or go", place)
    positions = [Route(rx, tx)]
    current, ring, pop = 0, False, POP_MODES[0]
    if "switches" in fields:
        names = ("pos1", "pos2", "pos3", "current_switch_pos", "ring_mode", "pop_mode")
        switches = known_fields(fields["switches"], ".switches", names, place)
        positions += _positions(switches, positions[0], place)
        ring = _flag(switches, "ring_mode", place)
        if "current_switch_pos" in switches:
            current = _number(switches["current_switch_pos"], ".current_switch_pos", 0, 3, place)
            if current >= len(positions):
                raise CslError(f".current_switch_pos is a position that there is, got {current}", place)
        if "pop_mode" in switches:
            pop = choice(switches["pop_mode"], ".pop_mode", POP_MODES, place)
    swap = sum(
        bit
        for bit, name in ((1, "color_swap_x"), (2, "color_swap_y"))
        if _flag(fields, name, place) or _flag(routes, name, place)
    )
    filter_ = color_filter(fields["filter"], place) if "filter" in fields else None
    return ColorConfig(tuple(positions), current, ring, pop, _flag(fields, "teardown", place), filter_, swap)


def _positions(switches: dict[str, Value], start: Route, place: Place) -> list[Route]:
    """Routes of positions 1 to 3.

    Each replaces input ports, output ports, or both, and keeps the others of the position before it. The documentation
    does not say of which position. Programs of xDSL need this one: their last position keeps the output of the third.
    """
    result: list[Route] = []
    for number, name in enumerate(("pos1", "pos2", "pos3"), start=1):
        if name not in switches:
            continue
        if len(result) != number - 1:
            raise CslError(f".{name} follows .pos{number - 1}, which is not given", place)
        fields = known_fields(switches[name], f".{name}", ("rx", "tx", "invalid"), place)
        if _flag(fields, "invalid", place):
            break
        before = result[-1] if result else start
        rx = ports_of(fields["rx"], f".{name}.rx", place) if "rx" in fields else before.rx
        tx = ports_of(fields["tx"], f".{name}.tx", place) if "tx" in fields else before.tx
        result.append(Route(rx, tx))
    return result


def color_filter(value: Value, place: Place) -> Filter:
    """The filter of a struct `.filter = .{ .kind = .{ .range = true }, .min_idx = 0, .max_idx = 3 }`.

    Raises:
        CslError: a field is unknown, wrong, or missing.
    """
    every = ("kind", *dict.fromkeys(name for names in LIMITS.values() for name in names), "count_data", "count_control")
    every += ("fast_mode",)  # says nothing of which wavelets pass
    fields = known_fields(value, ".filter", every, place)
    if "kind" not in fields:
        raise CslError(f".filter needs .kind: one of {', '.join(LIMITS)}", place)
    kind = choice(fields["kind"], ".kind", tuple(LIMITS), place)
    defaults = {"init_counter": 0, "min_idx": 0, "limit1": _COUNTER_TOP}
    limits = []
    for name in LIMITS[kind]:
        if name in fields:
            limits.append(_number(fields[name], f".{name}", 0, _COUNTER_TOP, place))
        elif name in defaults:
            limits.append(defaults[name])
        else:
            raise CslError(f"a filter of kind {kind} needs .{name}", place)
    control = _flag(fields, "count_control", place) if "count_control" in fields else kind != "counter"
    return Filter(kind, tuple(limits), control)
