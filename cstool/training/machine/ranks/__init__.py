"""The ranks of a run: processes, on one host or many, that train as one machine.

`link.py` is the interface of their messages, `mpi.py` sends these by MPI, and `joining.py` has a command join them.
Rank 0, which has MemoryX, gives orders (`orders.py`), which a `Worker` follows (`worker.py`). Panels and sums of
gradients travel between the two ends of SwarmX, `sending.py` and `receiving.py`, in the form of `wire.py`.
"""
