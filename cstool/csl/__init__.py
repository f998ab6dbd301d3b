"""Programs in CSL: `language` compiles them, `fabric` runs PEs and routers cycle by cycle, `sdk` is the host's side.

It needs `cstool.foundation`, NumPy, typer and rich, and nothing else of cstool.
"""
