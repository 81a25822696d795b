"""A group: many learners that take their steps as one network, in one CUDA graph on a GPU.

Their parameters are stacked in one tensor (networks, P), beside their state. The norm of a row is
the norm of a network, and an optimizer over rows counts each one's steps. A learner's own
parameters, statistics and state become views of its row: it can be tested, saved or trained alone
at any moment, and continue in another stack.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from lastlayer.layers import Layer
from lastlayer.layers.mask import Keep
from lastlayer.replay.training.grouped_net import GroupedNet, Part
from lastlayer.replay.training.learner import Learner
from lastlayer.replay.training.training_options import Precision

HEAD = "layer."
ALIGN = 64  # numbers: GPUs read tensors faster that begin at whole lines of memory


class Recorder:
    """Takes the same step again and again: runs it once, records it, and then launches it whole."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def begin(self) -> None:
        """Let the stream wait for what was launched before."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())

    def end(self) -> None:
        """Let what is launched from now on wait for the stream."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)

    def take(self, step: Callable[[], None], which: int = 0) -> None:
        """Take a step; steps that launch the same work are told apart by ``which``."""
        if which in self.graphs:
            with torch.cuda.stream(self.stream):
                self.graphs[which].replay()
            return
        self.directly(step)
        if self.stream is not None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(self.stream), torch.cuda.graph(graph, stream=self.stream):
                step()  # recorded, not run
            self.graphs[which] = graph

    def directly(self, step: Callable[[], None]) -> None:
        """Take a step without recording it."""
        with torch.cuda.stream(self.stream):
            step()

    def forget(self) -> None:
        """Drop what was recorded."""
        if self.stream is not None:
            self.stream.synchronize()
        self.graphs.clear()


@dataclass(frozen=True)
class Heads:
    """Those of the first networks that share one kind of layer and mask."""

    layer: Layer
    keep: Keep
    rows: Tensor  # which they are

    def loss(self, z: Tensor, one_hot: Tensor, y: Tensor, tensors: dict[str, Tensor]) -> Tensor:
        """Return the sum of the networks' losses.

        Of all networks: features (n, batch, h), targets (n, N, batch), their classes (n, batch),
        and parameters of layers, each (n, …).
        """
        own = [name for name, _ in self.layer.named_parameters()]
        parts = {name: tensors[HEAD + name].index_select(0, self.rows) for name in own}
        logits: Tensor = functional_call(self.layer, parts, z.index_select(0, self.rows))
        logits = logits * self.keep(one_hot.index_select(0, self.rows)).mT
        classes = y.index_select(0, self.rows).flatten()
        return functional.cross_entropy(logits.flatten(0, 1), classes, reduction="sum")


class Group:
    """Trains some learners through their epochs; one that runs out of batches stands still.

    Those with more full batches in an epoch come first. A last smaller batch is left to the learner
    alone.
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
        self.recorder = Recorder(device)
        self.heads: dict[int, list[Heads]] = {}

    def take_epoch(self, orders: Sequence[Tensor]) -> None:
        """Train on an epoch's rows; a last batch of a single image is left out."""
        full = [len(order) // self.batch_size for order in orders]
        self._lay_out(orders, full)
        self.stack.share_steps()
        self.recorder.begin()
        for step in range(max(full, default=0)):
            n = sum(n > step for n in full)
            self.recorder.take(partial(self.step, n), n)
        self.recorder.end()
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
            self.recorder.forget()
            self.batches = torch.empty_like(batches, device=self.at.device)
        self.batches.copy_(batches)
        self.at.zero_()

    def step(self, n: int) -> None:
        """Train the first n networks on the next batch; nothing here waits for a GPU."""
        rows = self.batches.index_select(0, self.at)[0, :n].mT  # (batch, n)
        self.at += 1
        tensors = self.stack.tensors(n, self.precision)
        loss = self._loss(rows, tensors, n)
        self._move(self.stack.gradient(loss, tensors, n))

    def _loss(self, rows: Tensor, tensors: dict[str, Tensor], n: int) -> Tensor:
        """Return the sum of all networks' mean losses."""
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
    def _move(self, gradient: Tensor) -> None:
        """Let each of the first networks take a step along its own gradient, a row of (n, P)."""
        n = len(gradient)
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


@dataclass(frozen=True)
class Slot:
    """The place of a parameter in a row."""

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
        self.slots, self.statistics = _slots(learners, net), net.statistics
        self.kernels = [slot for slot in self.slots if slot.part.kernel]
        self.rest = [slot for slot in self.slots if not slot.part.kernel]
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
        self.places: dict[int, Tensor] = {}
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
        """Return the rows of a part of the optimizer's state; a parameter counts its own steps."""
        if name not in self.state:
            n, length = self.values.shape
            length = len(self.slots) if name == "step" else length
            self.state[name] = torch.zeros(n, length, dtype=like.dtype, device=like.device)
        return self.state[name]

    def rows(self) -> list[nn.Parameter]:
        """Return each network's parameters as one row."""
        return [nn.Parameter(row) for row in self.values]

    def state_of(self, row: int) -> dict[str, Tensor]:
        """Return a row's part of the optimizer's state; the first parameter's steps are its own."""
        return {
            name: rows[row, 0] if name == "step" else rows[row] for name, rows in self.state.items()
        }

    def share_steps(self) -> None:
        """Count a network's steps alike for its row and for each of its parameters.

        Trained alone, a frozen or unused parameter counts no steps; it does not move either way.
        """
        if "step" in self.state:
            steps = self.state["step"]
            steps.copy_(torch.where(self.own, steps, 0).amax(dim=1, keepdim=True))

    def tensors(self, n: int, precision: Precision) -> dict[str, Tensor]:
        """Return parameters and statistics of the first n networks as a grouped one takes them.

        Parameters are copies, to find gradients for; statistics are the networks' own.
        """
        tensors = {}
        for slot in self.kernels:
            own = slot.of(self.values[:n])
            dtype = precision.cast or own.dtype
            form = torch.channels_last if precision.channels_last else torch.contiguous_format
            shape = slot.part.shape_of(n)
            tensors[slot.name] = torch.empty(
                shape, dtype=dtype, device=own.device, memory_format=form
            )
            _apart(tensors[slot.name], n).copy_(own)
        rest = self.values[:n].flatten().index_select(0, self._places(n))
        sizes = [n * slot.part.shape.numel() for slot in self.rest]
        for slot, own in zip(self.rest, rest.split(sizes), strict=True):
            tensors[slot.name] = own.view(slot.part.shape_of(n)).detach()
        for slot in self.slots:
            tensors[slot.name].requires_grad_(slot.trained)
        for name, part in self.statistics.items():
            tensors[name] = self.buffers[name][:n].view(part.shape_of(n))
        return tensors

    def gradient(self, loss: Tensor, tensors: Mapping[str, Tensor], n: int) -> Tensor:
        """Find the gradient (n, P) of a loss; zero for whatever it does not depend on."""
        names = [slot.name for slot in self.slots if slot.trained]
        leaves = [tensors[name] for name in names]
        found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        by_name = dict(zip(names, found, strict=True))
        gradient = torch.zeros_like(self.values[:n])
        for slot in self.kernels:
            if slot.trained:
                slot.of(gradient).copy_(_apart(by_name[slot.name], n))
        rest = [
            by_name[slot.name] if slot.trained else torch.zeros_like(tensors[slot.name])
            for slot in self.rest
        ]
        flat = torch.cat([own.flatten() for own in rest])
        gradient.view(-1).index_copy_(0, self._places(n), flat)
        return gradient

    def _places(self, n: int) -> Tensor:
        """Return the places of all but kernels in the first n rows, one parameter after another.

        They are many and small: moved at once, they cost a GPU two launches instead of a hundred.
        """
        if n not in self.places:  # while recording no index may be copied to a GPU
            rows = torch.arange(n).unsqueeze(1) * self.values.shape[1]
            own = [torch.arange(slot.at.start, slot.at.stop) for slot in self.rest]
            places = torch.cat([(rows + columns).flatten() for columns in own])
            self.places[n] = places.to(self.values.device)
        return self.places[n]


def _apart(kernels: Tensor, n: int) -> Tensor:
    """View the kernels of all networks as (n, …)."""
    own: Tensor = kernels.unflatten(0, (n, -1))
    return own


def _slots(learners: Sequence[Learner], net: GroupedNet) -> list[Slot]:
    """Lay out a row: the backbone, then every parameter that any of the layers has."""
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
