"""CSL, the language of processing elements: source text -> checked programs and a layout for the simulated fabric.

`parse` reads one file; `evaluate` runs the code that is known at compile time, with the layout block; `emit` turns the
functions of one specialised file into Python, as `fabric.interface` wants it.
"""
