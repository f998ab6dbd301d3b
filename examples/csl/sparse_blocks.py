"""The host's side of spmv and spmv_hypersparse: a sparse matrix in packed blocks on the PEs, and a product."""

import numpy as np
import scipy.sparse as sp
from host import Wafer


def put_matrix(wafer: Wafer, A: sp.csr_matrix) -> None:
    """Deal out a matrix [n, n] float32: of each block, the columns and rows that are not empty in its column or row.

    Raises:
        AssertionError: a block has more than the program was compiled for
    """
    width, height, n, capacity, kept = (wafer.params[key] for key in ("width", "height", "n", "capacity", "kept"))
    across, down = n // width, n // height
    A = A.tocsr()
    columns = [np.flatnonzero(np.diff(A[:, x * across : (x + 1) * across].tocsc().indptr)) for x in range(width)]
    rows = [np.flatnonzero(np.diff(A[y * down : (y + 1) * down].indptr)) for y in range(height)]
    shape = (height, width)
    values, indices = np.zeros((*shape, capacity), np.float32), np.zeros((*shape, capacity), np.uint16)
    starts, counts = np.zeros((*shape, kept + 1), np.uint16), np.zeros((*shape, 2), np.uint16)
    wanted, places = np.zeros((*shape, kept), np.uint16), np.zeros((*shape, kept), np.uint16)
    for y, x in np.ndindex(shape):
        block = A[y * down + rows[y]][:, x * across + columns[x]]
        sizes = len(columns[x]), len(rows[y])
        assert block.nnz <= capacity, f"PE {x}.{y} gets {block.nnz} elements, the capacity is {capacity}"
        assert max(sizes) <= kept, f"PE {x}.{y} gets {max(sizes)} columns or rows, kept are {kept}"
        values[y, x, : block.nnz], indices[y, x, : block.nnz] = block.data, block.indices
        starts[y, x, : len(rows[y]) + 1] = block.indptr
        counts[y, x] = sizes
        wanted[y, x, : len(columns[x])] = columns[x]
        places[y, x, : len(rows[y])] = rows[y]
    names = ("values", "indices", "starts", "wanted", "places", "counts")
    for name, array in zip(names, (values, indices, starts, wanted, places, counts), strict=True):
        wafer.put(name, array)


def multiply(wafer: Wafer, x: np.ndarray) -> np.ndarray:
    """A x on the fabric, [n] float32; `put_matrix` put A there."""
    width, height, n = (wafer.params[key] for key in ("width", "height", "n"))
    wafer.put("x", x.reshape(1, width, n // width))
    wafer.call("multiply")
    return wafer.get("y", (height, 1, n // height)).ravel()
