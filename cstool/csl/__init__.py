"""Programs in CSL: `language` compiles them, `fabric` runs PEs and routers cycle by cycle, `sdk` is the host's side.

Of cstool it needs `foundation` alone. Programs need NumPy; `cstool fabric` also typer and rich, pictures matplotlib.
"""
