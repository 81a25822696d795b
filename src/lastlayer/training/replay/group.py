"""A group: many learners that take their steps as one network, in one CUDA graph on a GPU.

Parameters lie in one tensor (networks, P), and so does each part of the optimizer's state: a norm
over a row is a network's, and an optimizer over rows counts the steps of each. A learner's own
parameters, statistics and state become views of its row: it can be tested, saved or trained alone
at any moment, and go on in another group.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from lastlayer.layers import Layer
from lastlayer.layers.mask import Keep
from lastlayer.training.replay.grouped_net import GroupedNet, Part
from lastlayer.training.replay.learner import Learner

HEAD = "layer."
ALIGN = 64  # numbers: GPUs read tensors faster that begin at whole lines of memory


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies in a row."""

    name: str
    part: Part
    at: slice
    trained: bool

    def of(self, rows: Tensor) -> Tensor:
        """View it in rows (n, P), or in one (P,)."""
        own: Tensor = rows[..., self.at].unflatten(-1, self.part.shape)
        return own


class Stack:
    """The tensors of some learners, one row for each."""

    def __init__(self, learners: Sequence[Learner], net: GroupedNet) -> None:
        self.slots = _slots(learners, net)
        n, like = len(learners), learners[0].pool.shift
        length = _aligned(self.slots[-1].at.stop)
        self.values = torch.zeros(n, length, dtype=like.dtype, device=like.device)
        self.buffers = {
            name: torch.stack([learner.net.get_buffer(name) for learner in learners])
            for name, _ in learners[0].net.named_buffers()
        }
        names = [{name for name, _ in learner.net.named_parameters()} for learner in learners]
        owns = [[slot.name in own for slot in self.slots] for own in names]
        self.own = torch.tensor(owns, device=like.device)  # a layer may have no bias
        self.state: dict[str, Tensor] = {}
        for row, learner in enumerate(learners):
            learner.prime()
            self._take(row, learner)

    @torch.no_grad()
    def _take(self, row: int, learner: Learner) -> None:
        """Move a learner's tensors here."""
        parameters = dict(learner.net.named_parameters())
        for number, slot in enumerate(self.slots):
            if slot.name in parameters:
                parameter = parameters[slot.name]
                parameter.data = slot.of(self.values[row]).copy_(parameter)
                state = learner.optimizer.state[parameter]
                for name, value in state.items():
                    own = self._place(name, value)[row]
                    view = own[number] if name == "step" else slot.of(own)
                    state[name] = view.copy_(value)
        for name, buffers in self.buffers.items():
            path, _, own_name = name.rpartition(".")
            setattr(learner.net.get_submodule(path), own_name, buffers[row])

    def _place(self, name: str, like: Tensor) -> Tensor:
        """Give the rows of a part of the optimizer's state; steps are one for each parameter."""
        if name not in self.state:
            n, length = self.values.shape
            length = len(self.slots) if name == "step" else length
            self.state[name] = torch.zeros(n, length, dtype=like.dtype, device=like.device)
        return self.state[name]

    def rows(self) -> list[nn.Parameter]:
        """Give each network's parameters as one."""
        return [nn.Parameter(row) for row in self.values]

    def state_of(self, row: int) -> dict[str, Tensor]:
        """Give a row's part of the optimizer's state; the first parameter's steps are its own."""
        return {
            name: rows[row, 0] if name == "step" else rows[row] for name, rows in self.state.items()
        }

    def share_steps(self) -> None:
        """Count a network's steps alike for its row and for each of its parameters.

        Alone, one that is frozen or not used counts none; it does not move either way.
        """
        if "step" in self.state:
            steps = self.state["step"]
            steps.copy_(torch.where(self.own, steps, 0).amax(dim=1, keepdim=True))


def _slots(learners: Sequence[Learner], net: GroupedNet) -> list[Slot]:
    """Lay out a row: the backbone, then whatever any of the layers has."""
    parts, start = dict(net.parts), 0
    trained = {name: p.requires_grad for name, p in learners[0].net.named_parameters()}
    for learner in learners:
        for name, parameter in learner.layer.named_parameters():
            parts[HEAD + name] = Part(parameter.shape, merged=False, kernel=False)
            trained[HEAD + name] = True
    slots = []
    for name, part in parts.items():
        slots.append(Slot(name, part, slice(start, start + part.shape.numel()), trained[name]))
        start = _aligned(slots[-1].at.stop)
    return slots


def _aligned(length: int) -> int:
    return -(-length // ALIGN) * ALIGN


@dataclass(frozen=True)
class Heads:
    """Those of the first networks that have one kind of layer and mask."""

    layer: Layer
    keep: Keep
    rows: Tensor  # which they are

    def loss(self, z: Tensor, one_hot: Tensor, y: Tensor, tensors: dict[str, Tensor]) -> Tensor:
        """Give the sum of their losses.

        Args:
            z: (n, batch, h) features of all.
            one_hot: (n, N, batch) targets of all.
            y: (n, batch) their classes.
            tensors: parameters of all layers, each (n, …).
        """
        own = [name for name, _ in self.layer.named_parameters()]
        parts = {name: tensors[HEAD + name].index_select(0, self.rows) for name in own}
        logits: Tensor = functional_call(self.layer, parts, z.index_select(0, self.rows))
        logits = logits * self.keep(one_hot.index_select(0, self.rows)).mT
        classes = y.index_select(0, self.rows).flatten()
        return functional.cross_entropy(logits.flatten(0, 1), classes, reduction="sum")


class Group:
    """Takes the epochs of some learners; whoever is through with its batches stands still.

    Args:
        learners: those with more full batches in an epoch come first.
        net: their backbones as one.
        batch_size: of every step. A last smaller batch is left to the learner alone.
    """

    def __init__(self, learners: Sequence[Learner], net: GroupedNet, batch_size: int) -> None:
        self.learners, self.net, self.batch_size = learners, net, batch_size
        self.pool, self.precision = learners[0].pool, learners[0].precision
        self.stack = Stack(learners, net)
        self.rows = self.stack.rows()
        self.optimizer = learners[0].make_optimizer(self.rows)
        for number, row in enumerate(self.rows):
            self.optimizer.state[row] = self.stack.state_of(number)
        device = self.pool.x.device
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.batches = torch.zeros(0, dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.heads: dict[int, list[Heads]] = {}

    def take_epoch(self, orders: Sequence[Tensor]) -> None:
        """Train on an epoch's rows; a last batch of a single image is left out."""
        full = [len(order) // self.batch_size for order in orders]
        self._lay_out(orders, full)
        self.stack.share_steps()
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
        for step in range(max(full, default=0)):
            self._launch(sum(n > step for n in full))
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        self.stack.share_steps()
        for learner, order, n in zip(self.learners, orders, full, strict=True):
            last = order[n * self.batch_size :]
            if len(last) > 1:
                learner.step(last.to(self.pool.y.device))

    def _lay_out(self, orders: Sequence[Tensor], full: Sequence[int]) -> None:
        """Bring an epoch's batches to the device: (steps, networks, batch)."""
        shape = (max(full, default=0), len(orders), self.batch_size)
        batches = torch.zeros(shape, dtype=torch.int64)
        for number, (order, n) in enumerate(zip(orders, full, strict=True)):
            batches[:n, number] = order[: n * self.batch_size].view(n, self.batch_size)
        if self.batches.shape != batches.shape:  # a graph would go on reading the old ones
            if self.stream is not None:
                self.stream.synchronize()
            self.graphs.clear()
            self.batches = torch.empty_like(batches, device=self.at.device)
        self.batches.copy_(batches)
        self.at.zero_()

    def _launch(self, n: int) -> None:
        """Take a step of the first n; on a GPU the first runs plainly, then it is recorded."""
        if self.stream is None:
            self.step(n)
            return
        with torch.cuda.stream(self.stream):
            if n in self.graphs:
                self.graphs[n].replay()
            else:
                self.step(n)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.stream):  # runs nothing
                    self.step(n)
                self.graphs[n] = graph

    def step(self, n: int) -> None:
        """Train the first n networks on the next batch; nothing here waits for a GPU."""
        rows = self.batches.index_select(0, self.at)[0, :n].mT  # (batch, n)
        self.at += 1
        tensors = self._tensors(n)
        loss = self._loss(rows, tensors, n)
        wanted = [slot for slot in self.stack.slots if slot.trained]
        leaves = [tensors[slot.name] for slot in wanted]
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        self._move(dict(zip((slot.name for slot in wanted), found, strict=True)), n)

    def _tensors(self, n: int) -> dict[str, Tensor]:
        """Give parameters and statistics of the first n as the grouped network takes them."""
        tensors = {}
        for slot in self.stack.slots:
            own, part = slot.of(self.stack.values[:n]), slot.part
            dtype = self.precision.cast if part.kernel and self.precision.cast else own.dtype
            last = part.kernel and self.precision.channels_last
            form = torch.channels_last if last else torch.contiguous_format
            leaf = torch.empty(part.shape_of(n), dtype=dtype, device=own.device, memory_format=form)
            _apart(leaf, n, part).copy_(own)
            tensors[slot.name] = leaf.requires_grad_(slot.trained)
        for name, part in self.net.statistics.items():
            tensors[name] = self.stack.buffers[name][:n].view(part.shape_of(n))
        return tensors

    def _loss(self, rows: Tensor, tensors: dict[str, Tensor], n: int) -> Tensor:
        """Give the sum of all networks' mean losses."""
        x = self.pool.batch(rows).flatten(1, 2)
        if self.precision.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        backbone = {name: own for name, own in tensors.items() if not name.startswith(HEAD)}
        with self.precision.casting(x.device):
            z = self.net(x, backbone)
        z = z.to(self.pool.shift.dtype).unflatten(1, (n, -1)).transpose(0, 1)
        y = self.pool.y[rows].mT
        one_hot = functional.one_hot(y, self.pool.n_classes).mT
        losses = [heads.loss(z, one_hot, y, tensors) for heads in self._heads(n)]
        return torch.stack(losses).sum() / self.batch_size

    def _heads(self, n: int) -> list[Heads]:
        """Sort the first n by layer and mask, once: no index may be copied while recording."""
        if n not in self.heads:
            kinds: dict[tuple[type[Layer], Keep], list[int]] = defaultdict(list)
            for number, learner in enumerate(self.learners[:n]):
                kinds[type(learner.layer), learner.keep].append(number)
            self.heads[n] = [
                Heads(self.learners[own[0]].layer, keep, torch.tensor(own, device=self.at.device))
                for (_, keep), own in kinds.items()
            ]
        return self.heads[n]

    @torch.no_grad()
    def _move(self, gradients: dict[str, Tensor | None], n: int) -> None:
        """Let each of the first n networks take a step along its own gradient."""
        gradient = torch.zeros_like(self.stack.values[:n])
        for slot in self.stack.slots:
            found = gradients.get(slot.name)
            if found is not None:
                slot.of(gradient).copy_(_apart(found, n, slot.part))
        clip = self.learners[0].clip
        if clip is not None:  # as torch.nn.utils.clip_grad_norm_ does
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient *= (clip / (norm + 1e-6)).clamp(max=1.0)
        for number, row in enumerate(self.rows):
            row.grad = gradient[number] if number < n else None
        self.optimizer.step()
        counts = [own[:n] for name, own in self.stack.buffers.items() if own.dim() == 1]
        if counts:
            torch._foreach_add_(counts, 1)


def _apart(tensor: Tensor, n: int, part: Part) -> Tensor:
    """View a tensor of all networks as (n, …)."""
    return tensor.unflatten(0, (n, -1)) if part.merged else tensor
