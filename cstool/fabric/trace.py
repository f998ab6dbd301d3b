"""What happened on the fabric, cycle by cycle: recorded by the hook of a simulation, kept in a file, asked afterwards.

The hook is `on_trace(time, pe_index, kind, *fields)`:

- `"task"`: a task begins; its name. `"task_end"`: likewise.
- `"op"`: an operation begins; its thread ("main", "microthread 3") and its name. `"op_end"`: likewise.
- `"hop"`: a wavelet leaves a router; the port it leaves by, its color, its data, whether it is a control wavelet.
"""
