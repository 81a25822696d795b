"""The nearest rows of a few queries: one pass over the rows, whose lengths are cached."""

import torch
from torch import Tensor

from lastlayer.heads.neighbours.memory import Memory
from lastlayer.heads.neighbours.nearest import Nearest, exact_among, nobody

FEW = 4  # queries for which a pass over the rows each is sooner done than a tile is prepared
_MOST = 4096  # rows that may be looked at again


class Lengths:
    """Caches ½‖m − c‖² of a memory's rows; c is the first row, so that none ever changes."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: tuple[int, torch.dtype, torch.device] | None = None
        self._half = torch.empty(0)

    def nearest(self, query: Tensor, k: int) -> Nearest | None:
        """Return the k nearest rows of one query (1, h), or None where rounding hides them.

        ½‖m − c‖² − (q − c)·(m − c) orders the rows m as their distances from q do. Its rounding
        error is bounded, so only rows that are near enough for it are measured exactly.
        """
        rows = self._memory.z
        if rows.dtype not in (torch.float32, torch.float64) or not len(rows):
            return None
        half, first = self._halves(), rows[0]
        q = query[0].double() - first.double()
        rough = half - torch.mv(rows, q.to(rows.dtype))
        longest = float(half.max()) ** 0.5 * 1.5 + float(torch.linalg.vector_norm(first.double()))
        eps, h = torch.finfo(rows.dtype).eps, rows.shape[1]
        wrong = 2 * (h + 8) * eps * longest * (longest + float(torch.linalg.vector_norm(q)))
        near = rough.topk(min(k, len(rows)), largest=False).values[-1]
        # not (>): also where a number is not finite
        found = (~(rough > near + 2 * wrong)).nonzero().flatten()
        if found.numel() > _MOST:
            return None
        return exact_among(nobody(1, k, rows.device), query, rows, found)

    def _halves(self) -> Tensor:
        memory = self._memory
        known = (memory.rewrites, memory.z.dtype, memory.z.device)
        if known != self._known:
            self._half, self._known = memory.z.new_empty(0), known
        if self._half.numel() < len(memory):
            first = memory.z[:1]
            parts = memory.z[self._half.numel() :].split(max((1 << 20) // first.shape[1], 1))
            more = [(part - first).square_().sum(dim=1).div_(2) for part in parts]
            self._half = torch.cat([self._half, *more])
        return self._half
