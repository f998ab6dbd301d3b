"""A debugger for programs on the fabric, in the terminal.

A run is recorded first (`sdk.journal`), then repeated moment by moment (`replay`). Copies of the process that stand
still at moments make the ways back short (`checkpoints`).
"""
