"""Instructions of PE programs, and the layouts of their operands. `code.py` makes them, `interpreter.py` runs them.

An instruction is a row of six int32: its number, and the fields a to e. A field `r` is a register: a word (int64) of
the PE's region in `Fabric.words`, by its distance from the region's begin; floats are the bits of a float64. `k` is a
word of the constants, `i` a number, `pc` a row of the code, `ref` an operand (see `Tag`).

    name                a      b      c      d      e    effect
    LDI                 r      i                         a = b
    LDK                 r      k                         a = constant b
    MOV                 r      r                         a = b
    COPY                r      ref    i                  c words of an operand's record, from a on
    PICK                r      ref    r      i      i    a.. = element c, of e words, of d elements
    PLACE               ref    r      r      i      i    the reverse: element c = b..
    ADD to XOR          r      r      r                  a = b op c; the name with I behind it: c is a number
    RSUBI               r      r      i                  a = c - b
    SHL SHR USHR        r      r      r                  a = b shifted by c; likewise SHLI SHRI USHRI
    SEXT                r      r      i                  the low c bits of b, with their sign
    FDIV FMOD           r      r      r                  b // c, b % c; neither is negative
    UDIV UMOD           r      r      r                  likewise, of 64 bits
    QUOT REM            r      r      r      i           rounded towards zero; d is the text of the place; UQUOT UREM
    JMP                 pc
    JT JF               r      pc                        if a is not zero; zero
    JEQ to JULE         r      r      pc                 if a is less than b, and so on; JEQI to JGEI: b is a number
    JFEQ to JFNLE       r      r      pc                 likewise of floats
    FORINIT             r      r      pc                 a: turns, a + 1: value, a + 2: step, a + 3: end; b = value
    FORNEXT             r      r      pc                 to the next turn
    SPAN                r      r                         a = turns of b: start, b + 1: step, b + 2: end
    LD ST               r      r      i      i           a = view d at b + c units; b -1: none. ST stores a
    LOAD STORE          r      r             i           likewise at any byte
    LD64 ST64           r      r      i                  likewise, 64 bits at the word of byte b + c
    BYTES               r      i      k      i           d bytes of constants to byte a + b
    CYC CYCR            i | r                            adds to the cycles of the PE
    CALL                pc     r                         b keeps where it goes on
    RET                 r                                goes on there; -1: the function that was started is over
    FADD FSUB FMUL      r      r      r                  float64; FNEG, FABS of b
    RND32 RND16 RNDB16  r      r                         rounded to a short format, as float64
    RATIO MODULO        r      r      r                  as `fabric.scalar` has them
    FUNCTION            r      i      r      r           function b of `FUNCTIONS`
    ITOF UTOF           r      r                         an integer as a float64
    INTEGER             r      r      i                  `fabric.scalar.integer`; c: `BOUNDS`
    TO_BITS OF_BITS     r      r      i                  c: `FORMATS`
    PE                  r      i                         a = x, y, fabric_x or fabric_y
    ACTIVATE BLOCK UNBLOCK  r                            `pe.activate(a)` and so on
    HOST_UNBLOCK
    CONFIG_READ         r      r                         CONFIG_WRITE a: address, b: value
    QUEUE_FLUSH         r      i                         b: output
    QUEUE_COLOR         r      r      i                  c: output
    FIFO_LENGTH         i      i      r                  FIFO, written, elements
    TIME SHOWS          r
    COUNTER             r
    RANDOM              r                                SEED a: the generator
    SAY                 i      r      i                  text, values, their number
    FAIL                i                                text
    OUTSIDE             i      r      i                  fails unless index b is 0 to c - 1; a: text of the place
    SHIFT               r      r      i                  `fabric.scalar.shift`; c: text of the place
    RUN                 op     ref    ref    ref    ref  an operation on memory; its destination first
    WAIT START          op     ref    ref    ref    ref  the next row is MORE: its settings, its line
    MORE                ref    i      r
    WAITED              r                                a = whether the operation of WAIT did all its elements
    PAUSE
    LOAD_DSR            ref    ref    ref    i           register, operand, settings, save_address
    MAP                 r      i      i      i      pc   a: keeps the operation; operands, sources, may wait, end;
                                                         MORE rows: operand, letter, register of the callback
    MAP_READ            r                    pc          registers of the callback = the next elements; d: no more
    MAP_PUT             r      r                         the callback's result
    MAP_END             r
    RESTRIDE            r      i                         the stride of the Mem1d at a for elements of b bytes
"""

from enum import IntEnum


class Op(IntEnum):
    """All instructions."""

    (LDI, LDK, MOV, COPY, PICK, PLACE, ADD, SUB, MUL, AND, OR, XOR, ADDI, MULI, ANDI, ORI, XORI, RSUBI, SHL,
     SHR, USHR, SHLI, SHRI, USHRI, SEXT, FDIV, FMOD, UDIV, UMOD, QUOT, REM, UQUOT, UREM, JMP, JT, JF, JEQ, JNE,
     JLT, JLE, JULT, JULE, JEQI, JNEI, JLTI, JLEI, JGTI, JGEI, JFEQ, JFNE, JFLT, JFLE, JFNLT, JFNLE, FORINIT,
     FORNEXT, SPAN, LD, ST, LOAD, STORE, LD64, ST64, BYTES, CYC, CYCR, CALL, RET, FADD, FSUB, FMUL, FNEG, FABS,
     RND32, RND16, RNDB16, RATIO, MODULO, FUNCTION, ITOF, UTOF, INTEGER, TO_BITS, OF_BITS, PE, ACTIVATE, BLOCK,
     UNBLOCK, HOST_UNBLOCK, CONFIG_READ, CONFIG_WRITE, QUEUE_FLUSH, QUEUE_COLOR, FIFO_LENGTH, TIME, SHOWS,
     COUNTER, RANDOM, SEED, SAY, FAIL, OUTSIDE, SHIFT, RUN, WAIT, START, MORE, WAITED, PAUSE, LOAD_DSR, MAP,
     MAP_READ, MAP_PUT, MAP_END, RESTRIDE) = range(115)  # fmt: skip


ROW = 6
"""int32 of an instruction"""
HEADER = 4
"""words before the globals in a PE's region: the byte of the state at which its code goes on; the others are spare"""
BLOCK = 8
"""words before the constants of a program: words of a PE's region, address of `interpreter.FUNCTION`, address of the
table of functions, column and row of the fabric at which the rectangle begins. Behind the constants are the table, the
registers of arguments, and the instructions; `pc` is a byte of the state"""
TABLE_ROW = 4
"""words of a function in the table: pc, the register that keeps where its caller goes on, arguments, and the address of
their registers"""


class Tag(IntEnum):
    """The low three bits of a `ref`; the others are a word."""

    RECORD = 0
    """a record in the PE's region"""
    CONSTANT = 1
    """a record among the constants"""
    INT = 2
    """a register with an integer"""
    FLOAT = 3
    """a register with a float"""
    POINTER = 4
    """a register with the address of a scalar"""
    NONE = 7


class Kind(IntEnum):
    """Word 0 of an operand's record: the kind of the operand, and the meaning of the other words.

    INT, FLOAT: 1 value. POINTER: 1 address. FIFO: 1 number. DSR: 1 its place in the PE's region, 2 file, 3 number.
    MEM1D: 1 address, 2 extent, 3 stride, 4 width, 5 indexed.
    MEM4D: 1 address, 2 elements, 3 first, 4 width, 5 indexed, 6 dimensions, 7 to 10 extents (the fastest last, 1 where
    there is none), 11 to 14 strides, 15 wrap.
    FABIN: 1 queue, 2 extent, 3 color or -1, 4 on control, 5 terminate, 6 activate, 7 unblock (-1: none).
    FABOUT: 1 queue, 2 extent, 3 color, 4 control, 5 indexed, 6 advance the switch.
    """

    NONE = 0
    INT = 1
    FLOAT = 2
    POINTER = 3
    MEM1D = 4
    MEM4D = 5
    FABIN = 6
    FABOUT = 7
    FIFO = 8
    DSR = 9


RECORD = 16
"""words of the largest record"""
MOST = 7
"""operands of an operation at most: of `@map`"""
BEFORE = -4
"""first word of a held operand, from its record on"""
HELD = 24
"""words of an operand of an operation in progress: four words of `operands`, its record, and four spare ones"""
WORDS = {"Mem1d": 6, "Mem4d": 16, "FabricIn": 8, "FabricOut": 7, "Fifo": 2, "Dsr": 4, "Pointer": 2}
"""words of the record of each operand of `fabric.dsd`"""

SETTINGS = 10
"""words of `Settings`: activate, unblock, microthread (-1: none each), priority (0 high, 1 medium, 2 low), first index,
on control, its terminate, activate, unblock, saturate"""

DSR_WORDS = 2 + RECORD + SETTINGS
"""words of a register for operands: loaded, save_address, the operand, its settings"""

VIEWS = ("U8", "I8", "U16", "I16", "U32", "I32", "F32", "F16")
"""views of memory by number, as LD and ST have them"""
LETTERS = "BbHhwife"
"""letters of the same types, by the same numbers"""

FILES = ("dest", "src0", "src1")
BOUNDS = ((-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1), (-(1 << 63), (1 << 63) - 1), (0, (1 << 64) - 1))
"""bounds of INTEGER"""
FORMATS = ("bits32", "bits16", "upper", "float32", "float16", "bfloat16")
FUNCTIONS = "sqrt exp exp2 log log2 sin cos tan tanh atan asin acos ceil floor trunc pow mod".split()
"""functions of FUNCTION"""
