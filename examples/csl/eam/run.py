#!/usr/bin/env cs_python
"""Molecular dynamics of tantalum, an atom on each PE, beside NumPy.

Source: Santos et al., Breaking the Molecular Dynamics Timescale Barrier, arXiv 2405.07898 (embedded atoms, marching
multicast); potential: Finnis and Sinclair, 1984

Published: over 270,000 time steps a second of up to 800,000 tantalum atoms on a CS-2 (Santos et al. 2024); at 0.85 GHz
3,148 cycles a step
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, reach, steps = (wafer.params[key] for key in ("width", "height", "reach", "steps"))
LATTICE, KELVIN, TIME_STEP = 3.3058, 290.0, 2.0  # Angstrom, temperature, fs
INVERSE_MASS = 9.648533e-3 / 180.948  # Angstrom / fs^2 for eV / Angstrom: mass in u
BOLTZMANN = 8.617333e-5  # eV / K
A, DENSITY_RANGE, PAIR_RANGE, C = 2.591061, 4.07698, 4.2, (1.2157373, 0.0271471, -0.121735)

# A slab of the body-centred lattice, two cells thick: a column of PEs is a plane of it, rows are its layers in turn.
x, y = np.meshgrid(np.arange(width), np.arange(height))
start = LATTICE * np.stack([x / 2, y // 2 + x % 2 / 2, y % 2 + x % 2 / 2], axis=2).reshape(-1, 3)
random = np.random.default_rng(21)
velocity = random.standard_normal(start.shape) * np.sqrt(BOLTZMANN * KELVIN * INVERSE_MASS)
start, velocity = start.astype(np.float32), (velocity - velocity.mean(axis=0)).astype(np.float32)
on_pe = np.stack([x, y], axis=2).reshape(-1, 2)
in_reach = np.abs(on_pe[:, None] - on_pe).max(axis=2) <= reach


def forces(place: np.ndarray) -> tuple[np.ndarray, float]:
    """Forces [atoms, 3] in eV / Angstrom and the potential energy in eV, from all pairs."""
    apart = place[None] - place[:, None]
    r = np.linalg.norm(apart, axis=2) + 1e3 * np.eye(len(place))
    assert not ((r < PAIR_RANGE) & ~in_reach).any(), "neighbours on PEs that are too far apart for `reach`"
    pair_gap, density_gap = np.minimum(r - PAIR_RANGE, 0), np.minimum(r - DENSITY_RANGE, 0)
    polynomial, derivative = C[0] + C[1] * r + C[2] * r**2, C[1] + 2 * C[2] * r
    root = np.sqrt((density_gap**2).sum(axis=1))
    slope = -0.5 * A / np.maximum(root, 1e-30) * (root > 0)
    change = 2 * pair_gap * polynomial + pair_gap**2 * derivative + (slope[:, None] + slope) * 2 * density_gap
    return ((change / r)[..., None] * apart).sum(axis=1), (0.5 * pair_gap**2 * polynomial).sum() - A * root.sum()


with wafer:
    wafer.put("position", start.reshape(height, width, 3))
    wafer.put("velocity", velocity.reshape(height, width, 3))
    wafer.call("run", np.float32(TIME_STEP), np.float32(INVERSE_MASS))
    place = wafer.get("position", (height, width, 3)).reshape(-1, 3)
    energy = wafer.get("energy", (height, width, 2 * (steps + 1))).reshape(height * width, steps + 1, 2).sum(axis=0)
    cycles = wafer.cycles() / (steps + 1)

expected, speed = start.astype(float), velocity.astype(float)
force, potential = forces(expected)
energies = [(potential, 0.5 * (speed**2).sum() / INVERSE_MASS)]
for _ in range(steps):  # velocity Verlet
    speed += 0.5 * TIME_STEP * INVERSE_MASS * force
    expected += TIME_STEP * speed
    force, potential = forces(expected)
    speed += 0.5 * TIME_STEP * INVERSE_MASS * force
    energies.append((potential, 0.5 * (speed**2).sum() / INVERSE_MASS))
assert np.abs(energy - energies).max() <= 1e-5 * len(start), "energies differ from those of the twin"
total = energy.sum(axis=1)
assert np.ptp(total) <= 0.02 * energy[:, 1].max(), "energy is not conserved"

# Seen from above: each atom is a disc, by its height, in pixels of 0.15 Angstrom.
low, high = place.min(axis=0) - LATTICE / 2, place.max(axis=0) + LATTICE / 2
across, down = np.arange(low[0], high[0], 0.15), np.arange(low[1], high[1], 0.15)
above = np.full((down.size, across.size), low[2])
for atom in place[np.argsort(place[:, 2])]:
    above[np.hypot(down[:, None] - atom[1], across - atom[0]) < 1.1] = atom[2]
check(
    place, expected, 1e-4, picture=above - low[2], of="atoms at the end from above, by height in Angstrom",
    cycles=cycles, per="a time step",
)  # fmt: skip
