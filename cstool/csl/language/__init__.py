"""CSL, the language of processing elements: source text -> checked programs and a layout for the simulated fabric.

`parse` reads one file; `evaluate` runs what is known at compile time, the layout block among it; `emit` turns the
functions of one specialised file into Python, as `fabric.interface` wants it.
"""
