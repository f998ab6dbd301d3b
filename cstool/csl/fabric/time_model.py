"""Models of time: how long a PE takes for what it does, as the vendor's simulator counts, or a wafer at full load.

Published counts of the same programs differ between the two: power holds back a wafer whose PEs all work. Numbers here
are fitted to few published counts, named beside each; `benchmarks/fabric_cycles.py` compares all others.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TimeModel:
    """One model of time.

    Args:
        name: as `--time` has it
        text: in words, for reports
        pace: cycles that a PE takes for so many of its own: of code, of elements in memory. The fabric keeps its speed
        switch: cycles from when a task can run until it does
        turn: quarters of a cycle that the datapath takes to turn from one operation with the fabric to another
    """

    name: str
    text: str
    pace: tuple[int, int]
    switch: int
    turn: int


SIMULATOR = TimeModel("simulator", "the vendor's simulator", pace=(1, 1), switch=22, turn=3)
"""The vendor's simulator.

- switch: fitted, the ramp loop of 10 words, 66 cycles.
- turn: fitted, the ramp loop: 3.506 cycles a word between 10 and 1,000 words, of two elements.
"""

BUSY_WAFER = TimeModel("busy_wafer", "a wafer whose PEs are all busy", pace=(22, 15), switch=14, turn=1)
"""A CS-2 whose PEs are all busy.

- pace: fitted, STREAM's copies on a CS-2: 0.733 and 0.367 cycles an element, 0.500 and 0.250 in the simulator.
- switch: fitted, SUMMA's tiles of 4 on a CS-2, 914 cycles a step, and the ramp loop of 10 words, 62 cycles.
- turn: fitted, the ramp loop on a CS-2: 2.506 cycles a word.
"""

TIME_MODELS = {model.name: model for model in (SIMULATOR, BUSY_WAFER)}
