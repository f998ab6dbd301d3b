"""The state of the fast engine: one array of int64 words, and the place of each record and field in it.

A record is some words in a row; the address of its first word is its handle, and 0 is none. So `f[pe + P_CYCLES]` is a
field of a PE, and `f[queue + Q_ITEMS + 2 * k]` a word of an array in a record. One array, not many: a call of a
compiled function passes seven words for each array, and counts references to it.

SRAM lies in the same array: PE `pe` has `f[pe + P_SPAN]` bytes from byte `f[pe + P_MEMORY]` of the array on.

Letters before the names of fields: H the whole fabric, S a strip of rows, C a class (the PEs of one program), K a task,
P a PE and its router, T an operation in progress, Q an input queue, O an output queue, R a FIFO, F a color at a router
("flow"), G its config, L a link and the buffer at its end, N an event.

Numbers are the reference engine's; fields are named as its attributes are, and mean the same.
"""

from cstool.csl.fabric.arch import COLORS, PORTS

PORTS_COUNT = len(PORTS)
COLORS_COUNT = COLORS


class _Fields:
    """The fields of one kind of record, one behind the other."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, words: int = 1) -> int:
        """The place of the next field, of so many words."""
        at, self._next = self._next, self._next + words
        return at

    def line(self) -> int:
        """The place of the next field, which begins with a line of the cache."""
        self._next = self._next + 7 & ~7
        return self._next


# --- H: the fabric ---

_h = _Fields()
_h()  # word 0 is no record
H_COUNT = _h()
"""PEs"""
H_WIDTH = _h()
H_PES = _h()
"""address of a table: the PE of each index"""
H_COLORS = _h()
"""colors that may be in use: tables by color have so many words"""
H_SWITCH = _h()
"""`TimeModel.switch`"""
H_TURN = _h()
"""`TimeModel.turn`"""
H_PACE = _h()
"""`TimeModel.pace`"""
H_OVER = _h()
H_UNFUSED = _h()
"""1: a multiply-add rounds its product, too"""
H_STRIPS = _h()
"""strips: 1 or 2"""
H_STRIP = _h(2)
"""addresses of two strips"""
H_NETWORK = _h()
"""addresses of units (`units`) in this process: the network's part of a cycle"""
H_STEP = _h()
"""an element of an operation"""
H_INTERPRET = _h()
"""instructions of code, those that issue operations, and those that are rare"""
H_ISSUE = _h()
H_RARE = _h()
H_VECTOR = _h()
"""an operation on memory at once"""
H_LIMIT = _h()
"""the last cycle that code may come to in a loop"""
H_COLOR_PLACE = _h(COLORS_COUNT)
"""24 words: the place of each color in tables by color; -1: it is not in use"""
H_WORDS = _h()

# --- S: a strip of rows, with events and pools of its own ---

_s = _Fields()
S_NOW = _s()
"""the cycle"""
S_TOP = _s()
"""first free word of the strip's pool, in which records are made"""
S_LIMIT = _s()
"""end of the pool"""
S_ERROR = _s()
"""code of an error; 0: none. With it the engine stops"""
S_ERROR_PE = _s()
S_ERROR_TASK = _s()
"""the task of the error (K), or 0: the one that runs"""
S_ERROR_ARGUMENTS = _s(6)
"""six words, as each error says"""
S_EVENTS = _s()
"""events that have happened, for `Stats.events`"""
S_WHEEL = _s()
"""address of the wheel: first and last event of each of the next `WHEEL` cycles"""
S_WHEEL_EVENTS = _s()
"""events in the wheel"""
S_FAR = _s()
"""address of the heap of far events: time, number, event"""
S_FAR_COUNT = _s()
S_FAR_LIMIT = _s()
"""events that the heap can hold"""
S_FAR_NUMBER = _s()
"""number of the next far event: events of one cycle keep their order"""
S_FREE_EVENTS = _s()
"""first of the events that may be used again"""
S_NETWORK = _s()
"""the last cycle for which the network has something to do; it has nothing for later ones"""
S_MOVED = _s()
"""the last cycle in which the network moved"""
S_HOPS_AT = _s()
"""address of the words (link, data | control << 32) that arrive in the next cycle"""
S_HOPS = _s()
S_UPS_AT = _s(2)
"""two addresses, by parity of the cycle: likewise, that arrive from CEs"""
S_UPS = _s(2)
S_DOWNS_AT = _s(2)
"""two addresses, by parity of the cycle: (PE, color, data | control << 32) that CEs accept"""
S_DOWNS = _s(2)
S_AWAKE_AT = _s(2)
"""two addresses, by parity of the cycle: routers that are to be looked at"""
S_AWAKE = _s(2)
S_CREDITS_AT = _s()
"""address of links to which a credit returns in the next cycle"""
S_CREDITS = _s()
S_RAMPS_AT = _s()
"""address of links from CEs that may be free in the next cycle"""
S_RAMPS = _s()
S_CHANGES = _s(2)
"""first of the network's other events of the next cycle, in order; and the last"""
S_TEARDOWNS = _s(4)
"""by parity: first and last of the flows (as events) whose PEs hear of a teardown"""
S_OTHER = _s()
"""the strip beside this one; 0: there is none"""
S_OUT_TIME = _s(2)
"""by parity of the cycle: the cycle in which something was put out for the other strip, which takes it in the next"""
S_OUT_HOPS_AT = _s(2)
S_OUT_HOPS = _s(2)
S_OUT_CREDITS_AT = _s(2)
S_OUT_CREDITS = _s(2)
S_BARRIER = _s()
"""cycles that this strip has ended, for the other one"""
S_PUBLISHED = _s(2)
"""by parity of that number: the next cycle in which this strip has something to do (-1: none; -2: stop)"""
S_HOST = _s(2)
"""first and last event for the host, in order: see `HOST_UNBLOCKS`"""
S_FREE_CONFIGS = _s()
"""first of the configs (G) that may be used again"""
S_FILTERS = _s()
"""the last id of a filter"""
S_LINKS = _s()
"""the link that was made last"""
S_SCRATCH = _s()
"""address of `SCRATCH` words"""
S_WORDS = _s()

WHEEL = 256
"""cycles of the wheel"""
SCRATCH = 8192
"""words for short use: more than the SRAM of one PE"""

# --- C: a class, the PEs of one program ---

_c = _Fields()
C_TASKS = _c(64)
"""64 words: the task (K) of each id, or 0"""
C_CONTROLS = _c(64)
"""64 words: likewise, of tasks that control wavelets name"""
C_INPUT_CAPACITY = _c(8)
"""8 words"""
C_OUTPUT_CAPACITY = _c(8)
"""8 words; 0: there is no such queue"""
C_RECOLORED = _c(8)
"""8 words: by input queue, the set of colors that operations may give it"""
C_ARCH = _c()
"""2 or 3"""
C_MICROTHREADS = _c()
C_ANY_RECOLORED = _c()
C_TAKES_ANY = _c()
"""1: the program may take a wavelet of any color (WSE-2)"""
C_MAY_BIND = _c()
"""1: code may bind queues while it runs"""
C_HANDLERS = _c()
"""address of (kind, number, function) of each handler; kinds: `HANDLER_COLOR`, ..."""
C_HANDLERS_COUNT = _c()
C_TASKS_COUNT = _c()
"""tasks of both tables: places of times of `P_TIMES`"""
C_FIFOS_COUNT = _c()
C_CODE = _c()
"""address of its translated code (`instructions.BLOCK`)"""
C_OPERANDS = _c()
"""most operands of an operation, but for `@map`"""
C_TEXTS = _c()
"""number of its first text among the texts of all classes"""
C_NUMBER = _c()
"""its place in `FabricProgram.programs`"""
C_WORDS = _c()

HANDLER_COLOR, HANDLER_INPUT, HANDLER_OUTPUT = range(3)

# --- K: a task ---

_k = _Fields()
K_ID = _k()
K_KIND = _k()
K_FUNCTION = _k()
"""number of the function in the translated code"""
K_PLACE = _k()
"""its place among the times of `P_TIMES`; -1: a call of the host"""
K_ARGUMENTS = _k(3)
"""number of its arguments, then the letter of each (`ord`), two at most"""
K_WORDS = _k()

KINDS = ("local", "data", "control", "teardown")
DATA, CONTROL, TEARDOWN = range(1, 4)
"""values of `K_KIND`: places in `KINDS`"""

# --- P: a PE, and its router ---

_p = _Fields()
# what each cycle of a busy PE looks at comes first: it lies in few lines of the cache
P_STRIP = _p()
P_CLASS = _p()
P_MEMORY = _p()
"""byte of the array at which its SRAM begins; a multiple of 8"""
P_SPAN = _p()
"""bytes of its SRAM that are there"""
P_TICKED = _p()
P_PLANNED = _p()
P_DATAPATH_FREE = _p()
P_MAIN_PRIORITY = _p()
P_THREADS_COUNT = _p()
P_PRIORITIES = _p()
"""operations of microthreads of each priority, 16 bits each: 0 high, 1 medium, 2 low"""
P_SYNCHRONOUS = _p()
P_LAST_THREAD = _p()
P_TURNING = _p()
P_BASE = _p()
P_CYCLES = _p()
P_LOST = _p()
P_ENDED = _p()
"""the operation that has ended with this element; 0: none has"""
P_THREADS = _p(8)
"""eight words: operations of microthreads, in turn"""
P_SENT_AT = _p()
P_SENT = _p()
P_SENDING = _p()
"""first and last of the output queues that hold something"""
P_SENDING_LAST = _p()
P_FLUSHING = _p(2)
"""first and last of the queues that are to be flushed: N_A the queue, N_B 1 for an output queue"""
P_BY_COLOR = _p()
"""address of five tables by color: flows, exits, input queues, own output queues, colors of the host"""
P_ROUTER_SENT = _p()
P_ROUTER_LAST = _p()
P_AWAKE = _p()
P_HEADS = _p()
"""first of the buffers that hold something, by color and port"""
P_RUNNING = _p()
"""the task (K) that runs; 0: none"""
P_PICK_AT = _p()
P_FREE_FROM = _p()
P_RECEIVED = _p()
P_ELEMENTS = _p()
P_SETTLED = _p()
P_BESIDE = _p()
P_OWED = _p()
P_FRAME = _p()
"""address of the words of its code: globals, registers"""
P_TASKS_RUN = _p()
P_BUSY = _p()
P_PICKED = _p()
"""the task (K) that was picked, then the number of its arguments"""
P_ACTIVE = _p()
"""sets of task ids, a bit each"""
P_BLOCKED = _p()
P_BLOCKED_QUEUES = _p()
"""set of input queues, a bit each"""
P_LAST = _p()
P_HIGH = _p()
P_TIMES = _p()
"""address of two words for each task of the class: activated since, unblocked since"""
P_QUEUES = _p()
"""address of input queues, in the order in which the picker looks at them"""
P_QUEUES_COUNT = _p()
P_CALLS = _p(2)
"""first and last call of the host (N)"""
# the others
P_INDEX = _p()
P_LATEST = _p()
P_CALL = _p(K_WORDS)
"""a task record of its own (K), for functions that the host launches"""
P_PICKED_COUNT = _p()
P_PICKED_AT = _p()
"""address of the arguments of a call; 0: they are the next two words"""
P_PICKED_ARGUMENTS = _p(2)
P_HELD = _p()
"""the act of the main thread once a microthread is free: `REACH_RUN`, ...; 0: it waits for none"""
P_HELD_OPERATION = _p()
P_MAIN_OPERATION = _p()
"""the operation (T) that code waits for, between `run` and `do`"""
P_RESULT = _p()
"""1: the operation that code has waited for came to its end; 0: a FIFO ended it before"""
P_HANDLER = _p()
"""the next handler of a teardown task that runs; -1: none does"""
P_IN_CODE = _p()
"""1: a function has begun and not ended"""
P_RAN = _p()
P_NUMBERED = _p(8)
"""eight words: operation of each microthread, or 0"""
P_QUEUED = _p()
P_FREE_OPERATIONS = _p(2)
"""two words: first of the operation records that may be used again: of `C_OPERANDS` operands, and of `MOST`"""
P_CARRY = _p()
P_FLUSHED_INPUTS = _p()
P_FLUSHED_OUTPUTS = _p()
P_INPUTS = _p(8)
"""eight words: input queue of each number, or 0"""
P_OUTPUTS = _p(8)
"""eight words: output queue of each number, or 0"""
P_RINGS = _p()
"""address of its FIFOs, `R_WORDS` each"""
P_WORDS_OF = _p()
"""first of the words of the configuration (N: address and value) that have been written"""
P_COUNTER_BEGIN = _p()
P_COUNTER_STOPPED = _p()
"""the time stamp counter while it stands still; -1: it counts"""
P_BESIDE_PE = _p(5)
"""five words: the PE behind each port; 0: none"""
P_WORDS = _p()

FLOWS, EXITS, INPUT_OF, OUTPUT_OF, HOSTS = range(5)
"""tables of `P_BY_COLOR`; a flow that is not made yet is the address of its config, negative"""
TABLES = 5
FROM_HOST, TO_HOST = 1, 2
"""bits of the words of `HOSTS`"""

# --- Q: an input queue ---

_q = _Fields()
# what each wavelet looks at comes first: a line of the cache
Q_USER = _q()
"""the operation (T) that reads it"""
Q_COLOR = _q()
Q_HOST = _q()
"""whether the host brings its wavelets"""
Q_TASK = _q()
"""id of its data task; -1: none"""
Q_SHARED = _q()
Q_SIZE = _q()
"""items that it can hold: its capacity and the registers of the ramp"""
Q_HEAD = _q()
Q_LENGTH = _q()
Q_NUMBER = _q()
"""-1: the own queue of a color"""
Q_CAPACITY = _q()
Q_FLUSH = _q()
Q_UNBLOCKED = _q()
"""the cycle since when it is not blocked; -1: always"""
Q_LISTED = _q()
"""whether the picker looks at it"""
Q_ITEMS = _q.line()
"""(cycle of arrival, data | control << 32) of each"""

# --- O: an output queue ---

_o = _Fields()
O_NUMBER = _o()
O_COLOR = _o()
"""-1: each operation names its own"""
O_CAPACITY = _o()
O_STOPPED = _o()
O_NEXT = _o()
"""the next of the queues that hold something"""
O_SIZE = _o()
O_HEAD = _o()
O_LENGTH = _o()
O_ITEMS = _o()
"""data | control << 32 | color << 40 of each"""

# --- R: a FIFO ---

_r = _Fields()
R_ADDRESS = _r()
"""bytes in the SRAM of its PE"""
R_CAPACITY = _r()
R_WIDTH = _r()
R_PUSH_TASK = _r()
"""the task that a push activates; -1: none"""
R_POP_TASK = _r()
R_HEAD = _r()
R_LENGTH = _r()
R_WRITTEN_LENGTH = _r()
"""elements of operations that write it, or read it, where the program has set them; -1: it has not"""
R_READ_LENGTH = _r()
R_WORDS = _r()

# --- T: an operation in progress ---

_t = _Fields()
# what each element looks at comes first: two lines of the cache
T_STALLED = _t()
T_READY = _t()
T_COUNT = _t()
T_DONE = _t()
T_PRIORITY = _t()
"""0 high, 1 medium, 2 low"""
T_RARE = _t()
"""1: it is a `@map` or `@dfilt`, has a FIFO, or vectors whose elements have an index, or sends an index"""
T_OPERATION = _t()
"""its number in `operations`"""
T_OUTPUT = _t()
"""the output queue; 0: none"""
T_INPUTS_COUNT = _t()
T_INPUTS = _t(3)
"""three words: input queues that it reads"""
T_SOURCES = _t()
"""operands that it reads"""
T_UP_COLOR = _t()
T_UP_CONTROL = _t()
T_AHEAD_COUNT = _t()
"""elements that are read already"""
T_NUMBER = _t()
"""its microthread; -1: the main thread"""
T_DROP = _t()
"""1: `@dfilt`"""
T_CALL = _t()
"""1: `@map`"""
T_CODE = _t()
"""the row of its callback"""
T_POPPED_COUNT = _t()
T_PUSHED = _t()
"""the FIFO that it writes; 0: none"""
T_INDEXED = _t()
T_SENT_INDEX = _t()
"""whether the upper half of its wavelets is an index"""
T_TASK = _t()
"""the task (K) that began it"""
T_LINE = _t()
T_ACTIVATE = _t()
"""the task to activate at its end; -1: none"""
T_UNBLOCK = _t()
T_ON_CONTROL = _t()
"""1: a control wavelet has an effect on it: as the next three say"""
T_CONTROL_TERMINATE = _t()
T_CONTROL_ACTIVATE = _t()
T_CONTROL_UNBLOCK = _t()
T_FIRST_INDEX = _t()
"""-1: none"""
T_INDEX = _t()
T_COLORS = _t(3)
"""three words: the color that each gets as the operation begins; -1: it keeps its own"""
T_UP_ADVANCE = _t()
T_POPPED = _t(3)
"""three words: FIFOs that it reads"""
T_SENDS_MEMORY = _t()
"""1: it reads memory, and writes none"""
T_AHEAD = _t()
"""the first of the elements that are read already"""
T_KEPT = _t(0)
"""from here on, fields outlast the operation"""
T_AHEAD_AT = _t()
"""the words of elements that are read already"""
T_AHEAD_SIZE = _t()
"""words that there is room for: an element of each source, then the next"""
T_ROOM = _t()
"""operands that the record has room for: `C_OPERANDS`, or `MOST`"""
T_NEXT_FREE = _t()
T_OPERANDS = _t.line() + 4
"""from here on: its operands, `HELD` words each; each has its four words of `operands` before"""

# --- G: a config of a flow ---

_g = _Fields()
G_COUNT = _g()
"""positions"""
G_ROUTES = _g(4)
"""four words: rx | tx << 5"""
G_CURRENT = _g()
G_RING = _g()
G_POP = _g()
"""0 `no_pop`, 1 `always_pop`, 2 `pop_on_advance`"""
G_SWAP = _g()
G_TEARDOWN = _g()
G_FILTER = _g()
"""0 none, 1 range or sparse_range, 2 counter, 3 counter that does not count control wavelets"""
G_LIMITS = _g(3)
"""three words"""
G_FILTER_ID = _g()
"""a filter goes on counting where the next config has the same id"""
G_OWNED = _g()
"""1: a copy, for one flow; 0: the program's"""
G_WORDS = _g()

NO_FILTER, RANGE, COUNTER, COUNTER_OF_DATA = range(4)
"""values of `G_FILTER`"""

# --- F: a color at a router ---

_f = _Fields()
# what each wavelet looks at comes first: a line of the cache
F_PE = _f()
F_ROUTE = _f()
"""route rx | tx << 5 of its position, with links that are made, 0: nothing passes; -1: `way` finds it"""
F_PLAIN = _f()
F_OUT = _f(5)
"""five words: links by output port, the exit first"""
F_COLOR = _f()
F_TEARDOWN = _f()
F_ENDING = _f()
F_PENDING = _f()
"""1: `F_NEXT_CONFIG` holds from the next cycle on"""
F_POSITION = _f()
F_MADE = _f()
"""set of positions whose links have been made"""
F_IN = _f(5)
"""five words: buffers by input port"""
F_CONFIG = _f()
"""address of the config that was set last (G); flows share the configs of the program"""
F_NUMBER = _f()
"""number of the next wavelet for a filter that counts"""
F_NEXT_CONFIG = _f()
"""address of the config from the next cycle on (G), where `F_PENDING` says that there is one"""
F_WORDS = _f()

# --- L: a link, and the buffer at its end; or the way down a ramp ---

_l = _Fields()
# what the sender looks at: a line of the cache
L_PE = _l()
"""the PE that sends"""
L_KIND = _l()
"""`WITHIN`, `FROM_CE`: the sender is the CE of the PE, or `CROSSES`: it leads to the other strip"""
L_COLOR = _l()
L_FREE = _l()
L_WANTED = _l()
L_COUNT = _l()
L_FRESH = _l()
L_RETURNED = _l()
"""credits that return in the next cycle"""
# what the receiver looks at: another line
L_FLOW = _l()
"""the flow at its end; 0: it goes down the ramp"""
L_ORDER = _l()
"""color << 3 | side: the input port at its end"""
L_NEXT_HEAD = _l()
L_LENGTH = _l()
L_QUEUE = _l(4)
"""four words: data | control << 32, the head first"""
L_PORT = _l()
L_ROOM = _l()
L_RAMP_LISTED = _l()
L_NEXT = _l()
"""the link that was made before this one in its strip"""
L_WORDS = _l()

WITHIN, FROM_CE, CROSSES = range(3)
"""values of `L_KIND`"""
SIDE_MASK = 7
"""of `L_ORDER`"""

# --- N: an event ---

_n = _Fields()
N_NEXT = _n()
N_KIND = _n()
N_PE = _n()
N_A = _n()
N_B = _n()
N_C = _n()
N_D = _n()
N_TIME = _n()
N_WORDS = _n()

(TICK, CHOOSE, BEGIN, REACH, ACTIVATE, BLOCK, UNBLOCK, COMPLETE, UNBLOCK_HOST) = range(1, 10)
"""kinds of events of PEs"""
REACH_RUN, REACH_DO, REACH_END = range(1, 4)
"""acts of the main thread at the cycle that its code has come to: go on, do an operation, end the task"""
CHANGE, SET_ROOM, TEARS_DOWN = range(20, 23)
"""kinds of events of the network: N_A is the flow, or the exit; N_B the config (0: teardown ends), or the room"""
HOST_UNBLOCKS, HOST_TAKEN, HOST_SENT, HOST_SAYS = range(30, 34)
"""kinds of events for the host, at cycle N_TIME: PE N_PE (an address) unblocked its command stream; took a wavelet of
color N_A out of its queue; sent the host data N_B (with bit 32: control) of color N_A; said or printed (N_A.. as the
interpreter says)"""

CONTROL_BIT = 1 << 32
DATA_MASK = 0xFFFFFFFF
COLOR_SHIFT = 40
