"""Errors that the fast engine stops with: a code and up to six arguments each, which Python makes messages of.

`S_ERROR_PE` is always the PE (its address). Messages are the reference engine's, which the comments name.
"""

FULL = 1
"""a pool of the strip is full"""
NOT_CONFIGURED = 2
"""color, side: `errors.not_configured`"""
OFF_RECTANGLE = 3
"""color, port: `errors.off_rectangle`"""
NOBODY_TAKES = 4
"""color, side: `errors.nobody_takes`"""
CONFLICT = 5
"""color, first side, second side, cycle: `errors.conflict`"""
UNBOUND_COLOR = 6
"""color: a wavelet came, and its queue is bound to another color (`Ramp.accept`)"""
NO_INPUT_QUEUE = 7
"""queue, number of the operation: `Ramp.input_queue`"""
NO_SUCH_OUTPUT_QUEUE = 8
"""queue, number of the operation, queues that there are: `Ramp.output_queue`"""
NO_OUTPUT_COLOR = 9
"""queue, number of the operation: `Ramp.output_queue`, none is bound"""
NOT_EMPTY = 10
"""queue, 1 for an output queue, wavelets in it, its color: `Ramp.bind`"""
NOTHING_TO_FLUSH = 11
"""queue, 1 for an output queue: `Ramp.flush`"""
NO_LOCAL_TASK = 12
"""task: `MainThread.check_task`"""
READ_TWICE = 13
"""the operation (T) that begins, the queue (Q), the operation that reads it: `Datapath.begin`"""
NO_COLOR = 14
"""color: a register of it is written (`TileConfig.write`)"""
ITEMS_FULL = 15
"""an output queue holds more commands of ended operations than the engine has room for"""
OF_CODE = 100
"""codes from here on belong to the interpreter and the operations"""
NOT_LOADED = OF_CODE
"""file, number: a register of operands was never loaded (`DsrFile.held_by`)"""
OUTSIDE_BY_OPERATION = OF_CODE + 1
"""number of the operation, first byte, byte behind the last: `ProcessingElement.check_bounds`"""
OUTSIDE_BY_CODE = OF_CODE + 2
"""`MainThread._outside`"""
FAILED = OF_CODE + 3
"""text: `ProcessingElement.fail` with the two texts of that number"""
DIVISOR = OF_CODE + 4
"""text of the place, dividend, 1 for a remainder: `scalar.quotient`"""
INDEX = OF_CODE + 5
"""text of the place, index, extent: `scalar.outside`"""
SHIFTED = OF_CODE + 6
"""text of the place, count: `scalar.shift`"""
CANNOT_READ = OF_CODE + 7
"""number of the operation, kind of the operand"""
CANNOT_WRITE = OF_CODE + 8
"""number of the operation, kind of the operand"""
NO_SATURATE = OF_CODE + 9
"""number of the operation: `Issue._prepared`"""
MAP_WAITS = OF_CODE + 10
"""`Issue.map`"""
ENDLESS = OF_CODE + 30
"""`watch`: the code of a task has gone beyond the limit of cycles"""
