"""Decisions of a layout block so far: the rectangle, the program of each PE, the config of each color.

A wafer has 745,500 PEs, so all is kept in flat arrays of 32-bit numbers, and equal programs and configs are one.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.program import ColorConfig, Exported
from cstool.csl.language import syntax, types
from cstool.csl.language.routes import color_config
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.together import Numbers, Spread
from cstool.csl.language.types import BasicType, FunctionType, IntType, OpaqueType, PointerType, Type
from cstool.csl.language.values import Value, describe, key_of

if TYPE_CHECKING:
    from cstool.csl.language.builtins_table import Called
    from cstool.csl.language.compile import Options

MEMCPY_COLORS = (21, 22, 23)
"""Colors that memcpy needs for itself (comments of the vendor's examples: "reserved (memcpy)")."""
Waiting = tuple["array[int]", int | Spread, Callable[..., int], tuple[Any, ...]]
"""An entry that waits: the table, its cells, and the function that gives the number, with its arguments."""
_MOST_REMEMBERED = 4096
"""structs whose number is remembered by identity"""


@dataclass(frozen=True)
class Tile:
    """A program: a file and its parameters.

    Args:
        path: the file, absolute
        params: by name
        place: the `@set_tile_code` that named it first
        x, y: the PE of that call
    """

    path: str
    params: dict[str, Value]
    place: Place
    x: int
    y: int


class Keys:
    """Numbers of structs, equal for equal ones; a struct seen before is found by identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int]] = {}
        self._numbers: dict[Any, int] = {}

    def of(self, data: dict[str, Value]) -> int:
        """The number of a struct."""
        known = self._known.get(id(data))
        if known is not None and known[0] is data:
            return known[1]
        shared = _SHARED
        parts = [
            (id(value[0]), value[1])
            if (value[1].__class__ is int or value[1].__class__ is bool) and value[0].__class__ in shared
            else self._part(value)
            for value in data.values()
        ]
        number = self._numbers.setdefault((tuple(data), tuple(parts)), len(self._numbers))
        if len(self._known) < _MOST_REMEMBERED:
            self._known[id(data)] = (data, number)
        return number

    def _part(self, value: Value) -> Any:
        type_, data = value
        if data.__class__ is dict:
            return "struct", str(type_), self.of(data)
        return key_of(value)


_SHARED = frozenset({IntType, BasicType, OpaqueType})
"""types with one object each, so that its identity serves as a key"""


class Layout:
    """The layout so far.

    Args:
        options: options of the compiler
        resolve: finds the file that a `@set_tile_code` names

    Attributes:
        waiting: entries of turns that run together (`together`); None: turns run one after the other
    """

    def __init__(self, options: "Options", resolve: Any) -> None:
        self.options = options
        self.resolve = resolve
        self.width = 0
        self.height = 0
        self.place: Place | None = None
        self.waiting: list[Waiting] | None = None
        self.tiles: list[Tile] = []
        self.exported: dict[str, tuple[Exported, Type, Place]] = {}
        self.configs: list[ColorConfig] = []
        self._tile_of = array("i")
        self._tile_numbers: dict[Any, int] = {}
        self._colors: dict[int, array[int]] = {}
        self._sites: list[tuple[int, Place]] = []  # (config, where it was set)
        self._site_numbers: dict[tuple[int, int], int] = {}
        self._config_numbers: dict[ColorConfig, int] = {}
        self._known_configs: dict[int, ColorConfig] = {}
        self._paths: dict[tuple[str, str], str] = {}
        self._keys = Keys()

    # --- the rectangle ---

    def set_rectangle(self, width: int, height: int, place: Place) -> None:
        """`@set_rectangle`.

        Raises:
            CslError: it is set already, or empty, or larger than the fabric.
        """
        if self.place is not None:
            raise CslError("the rectangle is set once", place, notes=((self.place, "the first @set_rectangle"),))
        if width < 1 or height < 1:
            raise CslError(f"a rectangle has at least one PE, got {width} x {height}", place)
        self.check_fabric(width, height, place)
        self.width, self.height, self.place = width, height, place
        self._tile_of = array("i", [-1]) * (width * height)

    def check_fabric(self, width: int, height: int, place: Place) -> None:
        """Raise an error if the rectangle does not fit the fabric that was asked for."""
        options = self.options
        if options.fabric_dims is None:
            return
        fabric_width, fabric_height = options.fabric_dims
        # memcpy takes 4 columns west of the rectangle, 3 east, and a row north and south (SDK 2.10 documentation).
        west, east, north, south = (4, 3, 1, 1) if options.memcpy else (0, 0, 0, 0)
        x, y = options.fabric_offsets or (west, north)
        if x + width + east > fabric_width or y + height + south > fabric_height:
            extra = f", with {east} columns and {south} row for memcpy behind it" if options.memcpy else ""
            raise CslError(
                f"the rectangle must fit the fabric of {fabric_width} x {fabric_height} PEs, got {width} x {height} at "
                f"{x},{y}{extra}",
                place,
                f"--fabric-dims={x + width + east},{y + height + south} is enough",
            )

    def _index(self, x: Value, y: Value, called: "Called") -> int:
        column, row = x[1], y[1]
        for number, value in enumerate((x, y)):
            if value[0].__class__ is not IntType and value[0] is not types.COMPTIME_INT:
                raise CslError(f"a coordinate is an integer, got {describe(value)}", called.at(number))
        if not 0 <= column < self.width or not 0 <= row < self.height:
            if self.place is None:
                hint = "write @set_rectangle(width, height); at the top of the layout block"
                raise CslError("@set_rectangle comes first", called.place, hint)
            raise CslError(
                f"a PE of the rectangle is 0,0 to {self.width - 1},{self.height - 1}, got {column},{row}", called.place
            )
        return row * self.width + column  # type: ignore[no-any-return]

    # --- programs ---

    def set_tile(self, x: Value, y: Value, file: str, params: dict[str, Value], called: "Called") -> None:
        """`@set_tile_code`.

        Raises:
            CslError: the PE is outside, has a program already, or the file is not there.
        """
        at = self._index(x, y, called)
        module = called.scope.module
        path = self._paths.get((file, module.path))
        if path is None:
            path = self._paths[file, module.path] = self.resolve(file, module, called.place)
        key = path, self._keys.of(params)
        if self.waiting is not None:
            self.waiting.append((self._tile_of, at, self._tile_number, (key, params, called.place, x[1], y[1])))
            return
        number = self._tile_number(key, params, called.place, x[1], y[1])
        before = self._tile_of[at]
        if before >= 0:
            raise CslError(
                f"a PE has one program, got another for {x[1]},{y[1]}",
                called.place,
                notes=((self.tiles[before].place, "the first one"),),
            )
        self._tile_of[at] = number

    def _tile_number(
        self, key: tuple[str, int], params: dict[str, Value], place: Place, x: int | Spread, y: int | Spread
    ) -> int:
        number = self._tile_numbers.get(key)
        if number is None:
            number = self._tile_numbers[key] = len(self.tiles)
            x, y = (int(each.numbers[0]) if isinstance(each, Spread) else each for each in (x, y))
            self.tiles.append(Tile(key[0], params, place, x, y))
        return number

    def tile_numbers(self) -> NDArray[np.int32]:
        """[height, width]: index into `tiles` for each PE.

        Raises:
            CslError: a PE has no program.
        """
        numbers = np.frombuffer(self._tile_of, np.int32).reshape(self.height, self.width).copy()
        missing = np.argwhere(numbers < 0)
        if len(missing):
            y, x = missing[0]
            more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
            raise CslError(
                f"each PE of the rectangle needs a program, got none for {x},{y}{more}",
                self.place,
                f"write @set_tile_code({x}, {y}, ...); in the layout block",
            )
        return numbers

    # --- colors ---

    def set_color(self, x: Value, y: Value, color: int, config: Value, called: "Called") -> None:
        """`@set_color_config`.

        Raises:
            CslError: the config is wrong, or the color has one there.
        """
        at = self._index(x, y, called)
        key = self._config_key(config, called.at(3))
        if self.options.memcpy and color in MEMCPY_COLORS:
            raise CslError(
                f"color {color} is memcpy's own, like {MEMCPY_COLORS[0]} to {MEMCPY_COLORS[-1]}",
                called.place,
                "take another color, or compile without --memcpy",
            )
        sites = self._colors.get(color)
        if sites is None:
            sites = self._colors[color] = array("i", [-1]) * (self.width * self.height)
        if self.waiting is not None:
            self.waiting.append((sites, at, self._site_number, (key, called.node)))
            return
        site = self._site_number(key, called.node)
        before = sites[at]
        if before >= 0:
            raise CslError(
                f"a color is configured once at a PE, got color {color} again at PE {x[1]},{y[1]}",
                called.place,
                notes=((self._sites[before][1], "the first one"),),
            )
        sites[at] = site

    def _config_key(self, config: Value, place: Place) -> int:
        """Key of a config in `_known_configs`."""
        # Only structs have a config; for anything else `color_config` raises the error.
        key = self._keys.of(config[1]) if config[1].__class__ is dict else -1
        if key not in self._known_configs:
            self._known_configs[key] = color_config(config, place)
        return key

    def _site_number(self, key: int, node: syntax.Builtin) -> int:
        site = self._site_numbers.get((key, id(node)))
        if site is None:
            site = self._site_numbers[key, id(node)] = len(self._sites)
            self._sites.append((self.number_of(self._known_configs[key]), node.place))
        return site

    # --- turns of a loop that run together ---

    def enter_all(self, ended: list[tuple[int, list[Waiting]]]) -> bool:
        """Make the entries of turns that have run together, unless one of them is an error.

        Args:
            ended: number of turns, and their entries; in order

        Returns:
            Whether all are made; if not, none is.
        """
        entries = [
            (table, at.numbers if isinstance(at, Spread) else np.full(count, at), number_of, arguments)
            for count, waiting in ended
            for table, at, number_of, arguments in waiting
        ]
        cells: dict[int, list[Numbers]] = {}
        for table, at, _, _ in entries:
            cells.setdefault(id(table), []).append(at)
        tables = {id(table): np.frombuffer(table, np.int32) for table, _, _, _ in entries}
        for each, parts in cells.items():
            every = np.concatenate(parts)
            if len(np.unique(every)) < len(every) or (tables[each][every] >= 0).any():
                return False
        for table, at, number_of, arguments in entries:
            tables[id(table)][at] = number_of(*arguments)
        return True

    def number_of(self, config: ColorConfig) -> int:
        """Index of a config in `configs`."""
        number = self._config_numbers.get(config)
        if number is None:
            number = self._config_numbers[config] = len(self.configs)
            self.configs.append(config)
        return number

    def routes(
        self, tiles: NDArray[np.int32], local: list[dict[int, tuple[ColorConfig, Place]]]
    ) -> dict[int, NDArray[np.int32]]:
        """By color, [height, width]: index into `configs` for each router; -1: none.

        Args:
            tiles: [height, width], the program of each PE
            local: by program, its own configs, by color

        Raises:
            CslError: a program and the layout configure a color at one PE.
        """
        of_site = np.array([number for number, _ in self._sites] + [-1], np.int32)  # index -1: none
        routes = {
            color: of_site[np.frombuffer(sites, np.int32)].reshape(self.height, self.width)
            for color, sites in sorted(self._colors.items())
        }
        for program, configs in enumerate(local):
            for color, (config, place) in sorted(configs.items()):
                here = tiles == program
                number = self.number_of(config)
                if color in routes:
                    clash = here & (routes[color] >= 0)
                    if clash.any():
                        y, x = np.argwhere(clash)[0]
                        first = self._sites[self._colors[color][int(y) * self.width + int(x)]][1]
                        raise CslError(
                            f"a color is configured once at a PE, got color {color} again at PE {x},{y}",
                            place,
                            notes=((first, "the layout's"),),
                        )
                else:
                    routes[color] = np.full((self.height, self.width), -1, np.int32)
                routes[color][here] = number
        return dict(sorted(routes.items()))

    # --- exports ---

    def export(self, name: str, type_: Type, mutable: bool, place: Place) -> None:
        """`@export_name`.

        Raises:
            CslError: the name is exported already, as something else.
        """
        if isinstance(type_, PointerType):
            exported = Exported(name, "variable", str(type_.pointee.letter), mutable)
        else:
            assert isinstance(type_, FunctionType)
            letters = tuple(str(parameter.letter) for parameter in type_.parameters if parameter is not None)
            exported = Exported(name, "function", parameters=letters)
        before = self.exported.get(name)
        if before is not None and (before[0] != exported or before[1] != type_):
            raise CslError(f"a name is exported once, got '{name}' again", place, notes=((before[2], "the other one"),))
        self.exported.setdefault(name, (exported, type_, place))
