#!/usr/bin/env cs_python
"""Rayleigh-Benard convection: a fluid heated from below begins to turn, beside NumPy.

Source: A. J. Chorin, A numerical method for solving incompressible viscous flow problems, 1967

Published: a grid of nearly 200 million cells in nearly real time on a CS-2 (NETL and Cerebras, February 2023)
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

RAYLEIGH, PRANDTL, ROLL = 2e4, 1.0, 0.4
SOUND = 1.5  # all is in units of free fall over the height of the fluid, which is 1

wafer = Wafer()
width, height, n, steps = (wafer.params[key] for key in ("width", "height", "n", "steps"))
h = 1 / n
dt = 0.2 * h
smoothing = 1.15 * SOUND**2 * dt  # with less, sound grows in Euler's steps
# Diffusion of heat and of velocity are the same, as Prandtl's number is 1.
diffusion = np.sqrt(PRANDTL / RAYLEIGH)
constants = [dt, dt / (2 * h), diffusion * dt / h**2, SOUND**2 * dt / (2 * h), smoothing * dt / h**2, h]

# Two rolls, up at the ends and down in the middle.
_, x, z = np.ogrid[:height, :width, :n]
x, z = 2 * np.pi * (x + 0.5) / width, np.pi * (z + 0.5) / n
fields = np.zeros((height, width, 5, n))
fields[:, :, 0] = 1 - z / np.pi
fields[:, :, 1] = -ROLL * np.sin(x) * np.cos(z) * width / (2 * n)
fields[:, :, 3] = ROLL * np.cos(x) * np.sin(z)

padded = np.zeros((height, width, 5, n + 2), np.float32)
padded[:, :, :, 1:-1] = fields
with wafer:
    wafer.put("fields", padded.reshape(height, width, -1))
    wafer.put("constants", np.broadcast_to(np.float32(constants), (height, width, 6)))
    wafer.call("run")
    found = wafer.get("fields", (height, width, 5 * (n + 2))).reshape(padded.shape)[:, :, :, 1:-1]
    cycles = wafer.cycles() / steps


def with_walls(fields: np.ndarray) -> list[np.ndarray]:
    """The five fields [y + 2, x + 2, z + 2], with what the walls mirror."""
    grown = [np.pad(fields[:, :, k], 1, "symmetric") for k in range(5)]
    t, u, v, w, _ = grown
    u[:, [0, -1]] *= -1
    v[[0, -1]] *= -1
    for field in (t, u, v, w):
        field[:, :, [0, -1]] *= -1
    t[:, :, 0] += 2
    return grown


def gradient(field: np.ndarray) -> list[np.ndarray]:
    """The central differences along x, y, z."""
    return [np.gradient(field, h, axis=axis)[1:-1, 1:-1, 1:-1] for axis in (1, 0, 2)]


def laplacian(field: np.ndarray) -> np.ndarray:
    """The sum of second differences."""
    second = sum(
        np.diff(field, 2, axis)[tuple(slice(None) if a == axis else slice(1, -1) for a in range(3))]
        for axis in range(3)
    )
    return second / h**2


for _ in range(steps):
    grown = with_walls(fields)
    t, u, v, w, p = (fields[:, :, k] for k in range(5))
    forces = [0, *(-slope for slope in gradient(grown[4])), 0]
    forces[3] = forces[3] + t - (1 - z / np.pi)
    new = fields.copy()
    for k in range(4):
        slopes = gradient(grown[k])
        carried = u * slopes[0] + v * slopes[1] + w * slopes[2]
        new[:, :, k] += dt * (diffusion * laplacian(grown[k]) - carried + forces[k])
    outflow = sum(gradient(grown[1 + axis])[axis] for axis in range(3))
    new[:, :, 4] += dt * (smoothing * laplacian(grown[4]) - SOUND**2 * outflow)
    fields = new
check(
    found, fields, 1e-5,
    picture=found[height // 2, :, 0].T, of="temperature in the middle row of PEs, z upward", upward=True,
    cycles=cycles, per="a time step",
)  # fmt: skip
