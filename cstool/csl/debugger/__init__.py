"""A debugger for programs on the fabric, in the terminal.

A run is recorded first (`sdk.journal`), then repeated moment by moment (`replay`), as often as it takes to go back.
"""
