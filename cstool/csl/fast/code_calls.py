"""Calls in the code of PE programs as instructions: functions, the PE's methods, vector operations."""

import ast
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cstool.csl.fabric.dsd import FabricIn, FabricOut, Mem1d, Mem4d, OnControl, Pointer, Settings
from cstool.csl.fast.code_expressions import Expressions, fits
from cstool.csl.fast.code_values import (
    BOOL,
    FLOAT,
    INT,
    NO_REF,
    NOTHING,
    PRIORITIES,
    U64,
    VOID,
    Label,
    Ref,
    Reg,
    Type,
    UntranslatableError,
    Val,
    joined,
    settings_record,
    size_of,
    types_text,
    word_of,
)
from cstool.csl.fast.instructions import BOUNDS, FORMATS, FUNCTIONS, LETTERS, VIEWS, Kind, Op, Tag
from cstool.csl.fast.operations import NUMBERS

if TYPE_CHECKING:
    from cstool.csl.fast.code_functions import Function

_FIELDS = {
    "Mem1d": {"address": 1, "extent": 2, "stride": 3, "width": 4},
    "Mem4d": {"address": 1},
    "FabricIn": {"queue": 1, "extent": 2, "color": 3},
    "FabricOut": {"queue": 1, "color": 3, "extent": 2},
}
"""words of fields that code changes"""
_OPERANDS: dict[str, Any] = {each.__name__: each for each in (FabricIn, FabricOut, Mem1d, Mem4d, Pointer)}
_WITHOUT_VALUE = {
    "pe.activate": Op.ACTIVATE, "pe.block": Op.BLOCK, "pe.unblock": Op.UNBLOCK, "pe.host_unblock": Op.HOST_UNBLOCK,
    "pe.config_write": Op.CONFIG_WRITE, "pe.counter.set": Op.COUNTER,
}  # fmt: skip
_DIVIDED = {"quotient": (Op.QUOT, Op.UQUOT), "remainder": (Op.REM, Op.UREM)}


class Calls(Expressions):
    """Part of a function: its calls."""

    calls: "dict[int, Function]"

    @abstractmethod
    def note_variable(self, name: str, type_: Type) -> None:
        """Note that a variable has values of a type."""

    def call(self, node: ast.Call, into: Reg | None) -> Val:
        """A call."""
        function = node.func
        if isinstance(function, ast.Name):
            if function.id in self.module.definitions:
                return self._function(function.id, [self._argument(each) for each in node.args], into)
            maker = getattr(self, f"_call_{function.id}", None)
            if maker is not None:
                found: Val = maker(node, into)
                return found
            if function.id in ("Dsr", "Fifo"):
                return self.module.known(self.module.value(node))
            if function.id in _OPERANDS:
                return self._operand_of(function.id, node)
        elif isinstance(function, ast.BoolOp):
            return self._by_pointer(function, node)
        elif isinstance(function, ast.Attribute):
            if function.attr == "_replace":
                return self._replaced(function.value, node)
            return self._method(ast.unparse(function), node, into)
        raise UntranslatableError(f"the call {ast.unparse(node)[:60]!r}")

    # --- functions of the program ---

    def _argument(self, node: ast.expr) -> Val:
        value = self.expr(node)
        if isinstance(value.place, Reg) and value.place not in self.places.values() and size_of(value.type) == 1:
            return Val(value.type, self.register(value))
        return value

    def _function(self, name: str, values: Sequence[Val], into: Reg | None) -> Val:
        types = tuple(value.type for value in values)
        called = self.module.function(name, types)
        self.calls[id(called)] = called
        for place, value in zip(called.parameters, values, strict=True):
            self.move(place, value, value.type)
        self.emit(Op.CALL, called.entry, called.back)
        type_ = called.result
        if type_ in (None, VOID):
            return NOTHING
        assert type_ is not None
        to = self.into(into if size_of(type_) == 1 else None, type_)
        self.move(to, Val(type_, called.outcome), type_)
        return Val(type_, to)

    def _by_pointer(self, function: ast.BoolOp, node: ast.Call) -> Val:
        """`(FUNCTIONS.get(pointer) or pe.fail(...))(arguments)`: each function that it may be, one after the other."""
        get, failure = function.values
        assert isinstance(get, ast.Call)
        assert isinstance(failure, ast.Call)
        pointer = self.register(self.expr(get.args[0]))
        values = [self._argument(each) for each in node.args]
        end, result, to = Label(), None, None
        for known, name in self.module.pointers.items():
            if len(self.module.definitions[name].args.args) != len(values):
                continue
            other = Label()
            before = len(self.rows), len(self.placed)
            self.emit(Op.JNEI, pointer, known, other)
            try:
                value = self._function(name, values, None)
                result = joined(result, value.type)
            except UntranslatableError:  # a function of other types
                del self.rows[before[0] :], self.placed[before[1] :]
                continue
            if value.type != VOID:
                to = to or self.temporary(value.type)
                self.move(to, value, value.type)
            self.emit(Op.JMP, end)
            self.place(other)
        self.emit(Op.FAIL, self.module.text(tuple(ast.literal_eval(each) for each in failure.args)))
        self.place(end)
        return NOTHING if to is None or result is None else Val(result, to)

    def _call_finished(self, node: ast.Call, into: Reg | None) -> Val:
        return self.expr(node.args[0], into)

    # --- functions of `fabric.scalar` and of Python ---

    def _floats(self, op: Op, node: ast.Call, into: Reg | None) -> Val:
        registers = [self.register(self.expr(each), FLOAT) for each in node.args]
        to = self.into(into)
        self.emit(op, to, *registers)
        return Val(FLOAT, to)

    def _call_f16(self, node: ast.Call, into: Reg | None) -> Val:
        return self._floats(Op.RND16, node, into)

    def _call_bf16(self, node: ast.Call, into: Reg | None) -> Val:
        return self._floats(Op.RNDB16, node, into)

    def _call_ratio(self, node: ast.Call, into: Reg | None) -> Val:
        return self._floats(Op.RATIO, node, into)

    def _call_modulo(self, node: ast.Call, into: Reg | None) -> Val:
        return self._floats(Op.MODULO, node, into)

    def _call_function(self, node: ast.Call, into: Reg | None) -> Val:
        name = ast.literal_eval(node.args[0])
        if name not in FUNCTIONS:
            raise UntranslatableError(f"the function {name}")
        registers = [self.register(self.expr(each), FLOAT) for each in node.args[1:]]
        to = self.into(into)
        self.emit(Op.FUNCTION, to, FUNCTIONS.index(name), registers[0], registers[-1])
        return Val(FLOAT, to)

    def _call_int(self, node: ast.Call, into: Reg | None) -> Val:
        value = self.expr(node.args[0], into)
        return Val(INT, value.place, None if value.const is None else int(value.const))

    def _call_float(self, node: ast.Call, into: Reg | None) -> Val:
        value = self.expr(node.args[0])
        if value.const is not None:
            return Val(FLOAT, None, float(value.const))
        to = self.into(into)
        self.move(to, value, FLOAT)
        return Val(FLOAT, to)

    def _call_tuple(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        view = node.args[0]
        if isinstance(view, ast.Subscript) and isinstance(view.value, ast.Name) and isinstance(view.slice, ast.Slice):
            return self.load_slice(VIEWS.index(view.value.id), view.slice)
        raise UntranslatableError(f"the call {ast.unparse(node)[:60]!r}")

    def _call_list(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        return self.expr(node.args[0])

    def _call_len(self, node: ast.Call, into: Reg | None) -> Val:
        (turns,) = node.args
        if not isinstance(turns, ast.Call) or ast.unparse(turns.func) != "range":
            raise UntranslatableError(f"the call {ast.unparse(node)[:60]!r}")
        state = self.span(turns)
        to = self.into(into)
        self.emit(Op.SPAN, to, state.plus(1))
        return Val(INT, to)

    def span(self, turns: ast.Call) -> Reg:
        """Four registers for a `range`: its turns, which are not yet known, its start, step and end."""
        values = [self._argument(each) for each in turns.args]
        zero, one = Val(INT, None, 0), Val(INT, None, 1)
        start = zero if len(values) == 1 else values[0]
        stop = values[0] if len(values) == 1 else values[1]
        step = values[2] if len(values) == 3 else one
        state = self.temporary((INT,) * 4)
        for at, value in enumerate((start, step, stop), 1):
            self.move(state.plus(at), value, INT)
        return state

    def _call_integer(self, node: ast.Call, into: Reg | None) -> Val:
        bounds = ast.literal_eval(node.args[1]), ast.literal_eval(node.args[2])
        value = self.register(self.expr(node.args[0]), FLOAT)
        to = self.into(into)
        self.emit(Op.INTEGER, to, value, BOUNDS.index(bounds))
        return Val(U64 if bounds == BOUNDS[3] else INT, to)

    def _format(self, name: str, node: ast.Call, into: Reg | None) -> Val:
        number = FORMATS.index(name)
        value = self.register(self.expr(node.args[0]), FLOAT if number < 3 else None)
        to = self.into(into)
        self.emit(Op.TO_BITS if number < 3 else Op.OF_BITS, to, value, number)
        return Val(INT if number < 3 else FLOAT, to)

    def _call_bits32(self, node: ast.Call, into: Reg | None) -> Val:
        return self._format("bits32", node, into)

    def _call_bits16(self, node: ast.Call, into: Reg | None) -> Val:
        return self._format("bits16", node, into)

    def _call_upper(self, node: ast.Call, into: Reg | None) -> Val:
        return self._format("upper", node, into)

    def _call_float32(self, node: ast.Call, into: Reg | None) -> Val:
        return self._format("float32", node, into)

    def _call_float16(self, node: ast.Call, into: Reg | None) -> Val:
        return self._format("float16", node, into)

    def _call_bfloat16(self, node: ast.Call, into: Reg | None) -> Val:
        return self._format("bfloat16", node, into)

    def _divided(self, name: str, node: ast.Call, into: Reg | None) -> Val:
        place = self.module.text(ast.literal_eval(node.args[1]))
        left, right = (self._argument(each) for each in node.args[2:])
        wide = U64 in (left.type, right.type)
        one, other = self.register(left), self.register(right)
        to = self.into(into)
        self.emit(_DIVIDED[name][wide], to, one, other, place)
        return Val(U64 if wide else INT, to)

    def _call_quotient(self, node: ast.Call, into: Reg | None) -> Val:
        return self._divided("quotient", node, into)

    def _call_remainder(self, node: ast.Call, into: Reg | None) -> Val:
        return self._divided("remainder", node, into)

    def _call_shift(self, node: ast.Call, into: Reg | None) -> Val:
        value = self.register(self.expr(node.args[2]))
        to = self.into(into)
        self.emit(Op.SHIFT, to, value, self.module.text(ast.literal_eval(node.args[1])))
        return Val(INT, to)

    def _call_load64(self, node: ast.Call, into: Reg | None) -> Val:
        register, number = self.units(node.args[1])
        to = self.into(into)
        self.emit(Op.LD64, to, register, number)
        return Val(U64, to)

    def _call_store64(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        register, number = self.units(node.args[1])
        self.emit(Op.ST64, self.register(self.expr(node.args[2])), register, number)
        return NOTHING

    def _call_random16(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        to = self.into(into)
        self.emit(Op.RANDOM, to)
        return Val(INT, to)

    def _call_set_active_prng(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        self.emit(Op.SEED, self.register(self.expr(node.args[1])))
        return NOTHING

    # --- operands ---

    def _operand_of(self, name: str, node: ast.Call) -> Val:
        """`Mem1d(...)`: a constant, or a record whose words are put together."""
        names = list(_OPERANDS[name]._fields)
        given = dict(zip(names, node.args, strict=False)) | {each.arg: each.value for each in node.keywords}
        if name == "Mem4d":
            return self._tensor(given)
        values = {key: self.expr(each) for key, each in given.items() if key is not None}
        known = {key: value.const for key, value in values.items() if value.const is not None}
        late = {key: value for key, value in values.items() if value.const is None}
        if name == "Pointer":
            pointer = values["address"]
            if late:
                return Val("Pointer", self.register(pointer), None, [pointer])
            return self.module.known(Pointer(pointer.const))
        if not late:
            return self.module.known(_OPERANDS[name](**known))
        base = self.module.known(_OPERANDS[name](**known, **dict.fromkeys(late, 0)))
        return self._changed(base, late)

    def _changed(self, base: Val, fields: dict[str, Val]) -> Val:
        """An operand with other values in some fields."""
        assert isinstance(base.type, str)
        words = _FIELDS.get(base.type, {})
        for name in fields:
            if name not in words:
                raise UntranslatableError(f"another .{name} of a {base.type}")
        to = self.temporary(base.type)
        self.move(to, base, base.type)
        for name, value in fields.items():
            self.move(to.plus(words[name]), value, INT)
        return Val(base.type, to)

    def _tensor(self, given: dict[Any, ast.expr]) -> Val:
        lists = {}
        for name in ("extents", "strides"):
            node = given.pop(name)
            value = self.expr(node)
            lists[name] = value.parts
            if value.parts is None:
                lists[name] = [self.module.known(each) for each in value.const]
        values = {name: self.expr(each) for name, each in given.items()}
        rank = len(lists["extents"] or ())
        pads = [Val(INT, None, 1)] * (4 - rank), [Val(INT, None, 0)] * (4 - rank)
        words = [values["address"], Val(INT, None, 1), Val(INT, None, 0), values["width"]]
        words += [values.get("indexed", Val(INT, None, 0)), Val(INT, None, rank)]
        words += [*pads[0], *(lists["extents"] or ()), *pads[1], *(lists["strides"] or ()), Val(INT, None, 0)]
        to = self.temporary("Mem4d")
        self.emit(Op.LDI, to, int(Kind.MEM4D))
        for at, value in enumerate(words, 1):
            self.move(to.plus(at), value, INT)
        for at in range(4 - rank, 4):
            self.emit(Op.MUL, to.plus(2), to.plus(2), to.plus(7 + at))
        return Val("Mem4d", to)

    def _replaced(self, operand: ast.expr, node: ast.Call) -> Val:
        base = self.expr(operand)
        return self._changed(base, {str(each.arg): self.expr(each.value) for each in node.keywords})

    def _call_offset_dsd(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        base, by = self.expr(node.args[0]), self.expr(node.args[1])
        width = ast.literal_eval(node.args[2])
        if by.const is not None and base.const is not None:
            return self.module.known(base.const._replace(address=base.const.address + by.const * width))
        to = self.temporary(base.type)
        self.move(to, base, base.type)
        if by.const is not None:
            self.emit(Op.ADDI, to.plus(1), to.plus(1), by.const * width)
            return Val(base.type, to)
        scaled = self.temporary()
        self.emit(Op.MULI, scaled, self.register(by), width)
        self.emit(Op.ADD, to.plus(1), to.plus(1), scaled)
        return Val(base.type, to)

    def _call_placed_dsd(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        changed = self._changed(self.expr(node.args[0]), {"address": self.expr(node.args[1])})
        self.emit(Op.RESTRIDE, changed.place, ast.literal_eval(node.args[2]))
        return changed

    def operand(self, value: Val) -> Ref:
        """A value as an operand of an operation."""
        if value.type == "Pointer" and value.parts is not None:
            return Ref(self.register(value.parts[0]), Tag.POINTER)
        if value.type in (INT, BOOL, U64, FLOAT):
            is_float = value.type == FLOAT
            if value.const is not None:
                words = [Kind.FLOAT if is_float else Kind.INT, word_of(value.const)]
                return Ref(self.module.constant(words), Tag.CONSTANT)
            return Ref(self.register(value), Tag.FLOAT if is_float else Tag.INT)
        if value.place is None:
            raise UntranslatableError(f"an operand of type {value.type}")
        return self.ref(value)

    def _settings(self, node: ast.expr) -> Ref:
        """`Settings(...)`."""
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "Settings":
            raise UntranslatableError(f"the settings {ast.unparse(node)[:60]!r}")
        known: dict[str, Any] = {}
        late: list[tuple[int, Val]] = []
        words = {"activate": 0, "unblock": 1, "microthread": 2, "first_index": 4}
        for each in node.keywords:
            name = str(each.arg)
            if name == "on_control":
                assert isinstance(each.value, ast.Call)
                action: dict[str, Any] = {}
                for part in each.value.keywords:
                    value = self.expr(part.value)
                    if value.const is None:
                        late.append(({"activate": 7, "unblock": 8}[str(part.arg)], value))
                    else:
                        action[str(part.arg)] = value.const
                known["on_control"] = OnControl(**action)
                continue
            value = self.expr(each.value)
            if value.const is None:
                late.append((words[name], value))
            else:
                known[name] = value.const
        if known.get("priority", "low") not in PRIORITIES:
            raise UntranslatableError(f"the settings {ast.unparse(node)[:60]!r}")
        place = self.module.constant(settings_record(Settings(**known)))
        if not late:
            return Ref(place, Tag.CONSTANT)
        to = self.temporary((INT,) * 10)
        self.emit(Op.COPY, to, Ref(place, Tag.CONSTANT), 10)
        for word, value in late:
            self.move(to.plus(word), value, INT)
        return Ref(to, Tag.RECORD)

    def _operands(self, node: ast.expr) -> list[Ref]:
        assert isinstance(node, ast.Tuple)
        refs = [self.operand(self._argument(each)) for each in node.elts]
        return refs + [NO_REF] * (4 - len(refs))

    # --- methods of the PE ---

    def _method(self, name: str, node: ast.Call, into: Reg | None) -> Val:
        if name in _WITHOUT_VALUE:
            self.emit(_WITHOUT_VALUE[name], *[self.register(self._argument(each)) for each in node.args])
            return NOTHING
        maker = getattr(self, f"_pe_{name.removeprefix('pe.').replace('.', '_')}", None)
        if maker is None or not name.startswith("pe."):
            raise UntranslatableError(f"the call {name}()")
        found: Val = maker(node, into)
        return found

    def _pe_run(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        self.emit(Op.RUN, self._operation(node), *self._operands(node.args[1]))
        return NOTHING

    def _operation(self, node: ast.Call) -> int:
        name = ast.literal_eval(node.args[0])
        if name not in NUMBERS:
            raise UntranslatableError(f"the operation {name}")
        return NUMBERS[name]

    def _issued(self, op: Op, node: ast.Call) -> None:
        operands, settings = self._operands(node.args[1]), self._settings(node.args[2])
        self.emit(op, self._operation(node), *operands)
        self.emit(Op.MORE, settings, node.lineno)

    def _pe_wait(self, node: ast.Call, into: Reg | None) -> Val:
        self._issued(Op.WAIT, node)
        to = self.into(into)
        self.emit(Op.WAITED, to)
        return Val(BOOL, to)

    def start(self, node: ast.Call) -> None:
        """`if pe.start(...): yield from pe.pause()`."""
        self._issued(Op.START, node)

    def _pe_pause(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        self.emit(Op.PAUSE)
        return NOTHING

    def _pe_load_dsr(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        register, operand = (self.operand(self.expr(each)) for each in node.args[:2])
        settings = self._settings(node.args[2])
        self.emit(Op.LOAD_DSR, register, operand, settings, int(ast.literal_eval(node.args[3])))
        return NOTHING

    def _pe_map(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        return self._map(node, False)

    def _pe_map_wait(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        return self._map(node, True)

    def _map(self, node: ast.Call, may_wait: bool) -> Val:
        """`@map`: a loop of a read of all sources, the callback, and the write of its result.

        Where the operands wait for the fabric, the rows from MAP_READ on are run for each element on its own.
        """
        name, operands, letters = ast.unparse(node.args[0]), node.args[1], ast.literal_eval(node.args[2])
        assert isinstance(operands, ast.Tuple)
        given = len(self.module.definitions[name].args.args)
        types = tuple(FLOAT if letter in "fe" else INT for letter in letters[:given])
        called = self.module.function(name, types)
        self.calls[id(called)] = called
        refs = [self.operand(self._argument(each)) for each in operands.elts]
        kept, end, begin = self.temporary(), Label(), Label()
        self.emit(Op.MAP, kept, len(refs), given, int(may_wait), end)
        for at, (ref, letter) in enumerate(zip(refs, letters, strict=False)):
            register = called.parameters[at] if at < given else called.outcome
            self.emit(Op.MORE, ref, LETTERS.index(letter), register)
        self.place(begin)
        self.emit(Op.MAP_READ, kept, 0, 0, end)
        self.emit(Op.CALL, called.entry, called.back)
        self.emit(Op.MAP_PUT, kept, called.outcome)
        self.emit(Op.JMP, begin)
        self.place(end)
        self.emit(Op.MAP_END, kept)
        return NOTHING

    def _pe_load(self, node: ast.Call, into: Reg | None) -> Val:
        view = self.letter(node.args[0])
        register, number = self.units(node.args[1])
        to = self.into(into)
        self.emit(Op.LOAD, to, register, number, view)
        return Val(FLOAT if view >= 6 else INT, to)

    def _pe_store(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        view = self.letter(node.args[0])
        register, number = self.units(node.args[1])
        value = self.register(self.expr(node.args[2]), FLOAT if view >= 6 else None)
        self.emit(Op.STORE, value, register, number, view)
        return NOTHING

    def _one(self, op: Op, node: ast.Call, into: Reg | None, *more: int) -> Val:
        registers = [self.register(self.expr(each)) for each in node.args[:1]]
        to = self.into(into)
        self.emit(op, to, *registers, *more)
        return Val(INT, to)

    def _pe_config_read(self, node: ast.Call, into: Reg | None) -> Val:
        return self._one(Op.CONFIG_READ, node, into)

    def _pe_time(self, node: ast.Call, into: Reg | None) -> Val:
        return self._one(Op.TIME, node, into)

    def _pe_counter_shows(self, node: ast.Call, into: Reg | None) -> Val:
        return self._one(Op.SHOWS, node, into)

    def _pe_queue_color(self, node: ast.Call, into: Reg | None) -> Val:
        return self._one(Op.QUEUE_COLOR, node, into, int(ast.literal_eval(node.args[1])))

    def _pe_queue_flush(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        self.emit(Op.QUEUE_FLUSH, self.register(self.expr(node.args[0])), int(ast.literal_eval(node.args[1])))
        return NOTHING

    def _pe_fail(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        self.emit(Op.FAIL, self.module.text(tuple(ast.literal_eval(each) for each in node.args)))
        return NOTHING

    def _pe_say(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        return self._said("say", node.args[0])

    def _pe_print(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: ARG002
        return self._said("print", node.args[0])

    def _said(self, how: str, node: ast.expr) -> Val:
        """`'text' + shown('x', value) + ...`: its pieces are in the table of texts, the values in registers."""
        pieces: list[Any] = []
        values: list[Val] = []
        pending = [node]
        while pending:
            each = pending.pop()
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add):
                pending += [each.right, each.left]
            elif isinstance(each, ast.Constant):
                pieces.append(each.value)
            elif isinstance(each, ast.Call) and ast.unparse(each.func) == "shown":
                value = self.expr(each.args[1])
                if value.type not in (INT, BOOL, U64, FLOAT) and not isinstance(value.const, str):
                    raise UntranslatableError(f"a text of {types_text([value.type])}")
                if isinstance(value.const, str):
                    pieces.append(value.const)
                else:
                    pieces.append((ast.literal_eval(each.args[0]), value.type))
                    values.append(value)
            else:
                raise UntranslatableError(f"the text {ast.unparse(node)[:60]!r}")
        first = self.temporary(tuple(value.type for value in values))
        for at, value in enumerate(values):
            self.move(first.plus(at), value, value.type)
        self.emit(Op.SAY, self.module.text((how, tuple(pieces))), first, len(values))
        return NOTHING


__all__ = ["Calls", "fits"]
