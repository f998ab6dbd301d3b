"""The simulated fabric: processing elements, routers, colors and wavelets, cycle by cycle.

Input: `program`. Interface of compiled code to its processing element: `interface`. docs/csl/csl.md lists the known
facts about cycles, with their certainty.
"""
