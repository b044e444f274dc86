"""A head in few bits: whole numbers with a scale a row or a group of numbers, and what that does to the weights."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int8
from torch import Tensor

BITS = (2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class Quantised:
    """A matrix as codes (rows, columns), whole numbers in ±(2^(bits − 1) − 1), and scales (rows, groups) in float16.

    A number is code · scale, the scale being that of its group of columns.
    """

    codes: Int8[Tensor, "rows columns"]
    scales: Float[Tensor, "rows groups"]
    bits: int

    @property
    def nbytes(self) -> float:
        """Bytes when the codes are packed: bits/8 a number, and 2 for each scale."""
        return self.codes.numel() * self.bits / 8 + 2 * self.scales.numel()

    def restore(self) -> Float[Tensor, "rows columns"]:
        """Return the matrix in float32, as near as the codes can say."""
        rows, columns = self.codes.shape
        grouped = self.codes.view(rows, self.scales.shape[1], -1).float()
        return grouped.mul_(self.scales.float().unsqueeze(-1)).view(rows, columns)


def quantise(weight: Float[Tensor, "rows columns"], bits: int, group: int | None = None) -> Quantised:
    """Return the matrix rounded to whole numbers of so many bits, with one scale for each ``group`` columns of a row.

    Without ``group`` a row has one scale. The scale puts the largest number of its group on the largest code, so no
    number is off by more than half a scale. ``weight`` (rows, columns); for a head, a row is a token's.

    Raises ``ValueError`` for bits outside 2 to 8, or a group that does not divide the columns.
    """
    rows, columns = weight.shape
    group = columns if group is None else group
    if bits not in BITS:
        raise ValueError(f"bits must be in {BITS}, got {bits}")
    if group < 1 or columns % group:
        raise ValueError(f"group must divide the {columns} columns, got {group}")
    largest = 2 ** (bits - 1) - 1
    grouped = weight.reshape(rows, -1, group).float()
    scales = grouped.abs().amax(dim=-1) / largest
    # Rounded up to float16, so that the largest number still has a code; of a row of zeros any scale will do.
    scales = torch.nextafter(scales.half(), torch.full_like(scales, torch.inf).half())
    codes = (grouped / scales.float().unsqueeze(-1)).round_().clamp_(-largest, largest)
    return Quantised(codes.to(torch.int8).view(rows, columns), scales, bits)
