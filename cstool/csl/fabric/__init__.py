"""The simulated fabric: processing elements, routers, colors and wavelets, cycle by cycle.

`program` is what it is given, `interface` what compiled code sees of its processing element; docs/csl.md says what is
known of the cycles, and how surely.
"""
