"""Balance: a matrix cut into blocks of rows or of columns, each of which keeps as many weights as any other."""

from dataclasses import dataclass

import numpy as np

from cstool.params.sections.sparsity import SparsityParams


@dataclass(frozen=True)
class Balance:
    """In how many blocks the weights of a matrix compete. At most one of the two is more than 1.

    Args:
        in_groups: blocks of columns
        out_groups: blocks of rows

    Source: cerebras.pytorch.sparse, 2.10 (InputGroupScoreShaper, OutputGroupScoreShaper).
    """

    in_groups: int = 1
    out_groups: int = 1

    @property
    def groups(self) -> int:
        """Number of blocks."""
        return self.in_groups * self.out_groups

    def blocks(self, array: np.ndarray) -> list[np.ndarray]:
        """Return a view of every block.

        Args:
            array: (rows, columns); of any shape where there is one block

        Raises:
            ValueError: the blocks do not divide the array; `assign_groups` has told the user
        """
        if self.groups == 1:
            return [array]
        rows, columns = array.shape
        if rows % self.out_groups or columns % self.in_groups:
            raise ValueError(f"{self} does not divide {rows} x {columns}")
        height, width = rows // self.out_groups, columns // self.in_groups
        return [
            array[top : top + height, left : left + width]
            for top in range(0, rows, height)
            for left in range(0, columns, width)
        ]


UNBALANCED = Balance()


def balance_of(group: SparsityParams) -> Balance:
    """Return the balance that a group asks for."""
    return Balance(group.balance_in_groups or 1, group.balance_out_groups or 1)
