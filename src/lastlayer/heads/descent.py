"""The one update step of the gradient layers: mask, gradient, clip, momentum, for many members.

Members are laid out as (streams, members of a stream, …): the members of one stream learn from the
same mini-batches. A head is a fleet of one stream with one member. Logits are kept class by class,
(…, classes, samples), so that the softmax runs along whole vectors of samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from lastlayer.layers import MASKS, Form
from lastlayer.layers.form import unit

MOMENTUM = 0.9
CLIP = 10.0

T = TypeVar("T")


@dataclass
class Members:
    """The state of S streams with K gradient members each, of N classes and h features."""

    forms: Sequence[Form]  # K: what each member is
    masks: Sequence[str]  # K: how it is trained
    parameters: dict[str, Tensor]  # weight (S, K, N, h); bias, gamma (S, K, N); scale (S, K)
    velocity: dict[str, Tensor]  # of the same shapes
    lr: Tensor  # (S, K)
    steps: Tensor  # () how many steps were taken
    diverged: Tensor  # (S, K) the step that left the finite numbers, or −1
    seen: Tensor | None  # "exact": (S, N) 0/1, classes of which data have come; None: "paper"

    def __post_init__(self) -> None:
        """Find the runs of equal members: each is one slice of every tensor."""
        self.form_runs = _runs(self.forms)
        self.mask_runs = [(MASKS[mask], run) for mask, run in _runs(self.masks) if mask != "none"]

    def part(self, form: Form, run: slice) -> dict[str, Tensor]:
        """Give the parameters of a run of members, as its form takes them."""
        return {name: self.parameters[name][:, run] for name in form.parameters}

    def scores(self, z: Tensor) -> Tensor:
        """Give the logits (S, K, N, n) of features ``z`` (S, n, h) or (n, h), class by class."""
        rows = [form.rows(self.part(form, run)) for form, run in self.form_runs]
        v = rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)
        bias = self.parameters.get("bias", v.new_zeros(()).expand(v.shape[:3]))
        if z.dim() == 2:
            products = torch.addmm(bias.reshape(-1, 1), v.flatten(0, 2), z.mT)
        else:
            products = torch.baddbmm(bias.flatten(1).unsqueeze(-1), v.flatten(1, 2), z.mT)
        scores = products.view(*v.shape[:3], -1)
        self.divide_by_norm(scores, z)
        return scores

    def mark_diverged(self) -> None:
        """Note the members whose parameters have left the finite numbers with the last step."""
        finite = _norms(self.parameters, self.lr).isfinite().all(dim=0)
        lost = ~finite & (self.diverged < 0)
        torch.where(lost, self.steps - 1, self.diverged, out=self.diverged)

    def divide_by_norm(self, scores: Tensor, z: Tensor) -> None:
        """Divide by ‖z‖ where a form takes the direction of z; each sample is one column."""
        if any(form.unit_input for form in self.forms):
            inverse = unit(z)[1].mT.unsqueeze(-3)  # (…, 1, 1, n)
            for form, run in self.form_runs:
                if form.unit_input:
                    scores[:, run] *= inverse


def step(members: Members, z: Tensor, y: Tensor, share: Tensor | None = None) -> None:
    """Take one step of SGD with momentum on one mini-batch per stream.

    Args:
        members: whose state is changed.
        z: (S, n, h) features.
        y: (S, n) their classes.
        share: (S, n) the weight of each sample in its batch's mean loss; None: 1/n. A stream
            whose shares are all zero stands still: batches of different sizes are padded with 0.
    """
    target = _one_hot(y, members.parameters["weight"].shape[2], share)
    present = target.amax(dim=-1)  # (S, 1, N)
    if members.seen is not None:
        torch.maximum(members.seen, present[:, 0], out=members.seen)
    g = _loss_gradient(members, members.scores(z), target)
    g *= 1 / y.shape[1] if share is None else share[:, None, None, :]
    _descend(members, _gradient(members, z, g), _touched(members, present, share))
    members.steps += 1


def _one_hot(y: Tensor, n_classes: int, share: Tensor | None) -> Tensor:
    """Give the targets (S, 1, N, n); a sample without weight has none."""
    real = torch.ones(y.shape, device=y.device) if share is None else (share > 0).float()
    empty = torch.zeros(y.shape[0], 1, n_classes, y.shape[1], device=y.device)
    return empty.scatter_(2, y[:, None, None, :], real[:, None, None, :])


def _loss_gradient(members: Members, scores: Tensor, target: Tensor) -> Tensor:
    """Give softmax − one-hot of the masked logits, masked again (S, K, N, n)."""
    target = target.to(scores.dtype)
    keeps = [(run, keep(target)) for keep, run in members.mask_runs]
    for run, keep in keeps:
        scores[:, run] *= keep
    if members.seen is not None:
        scores.masked_fill_((members.seen == 0)[:, None, :, None], -torch.inf)
    g = torch.softmax(scores, dim=2)
    g -= target
    for run, keep in keeps:
        g[:, run] *= keep
    return g


def _gradient(members: Members, z: Tensor, g: Tensor) -> dict[str, Tensor]:
    """Turn the gradient on the logits into one on each learned parameter, for all members."""
    learned = {name for form in members.forms for name in form.learned}
    gradient = {
        name: torch.zeros_like(members.parameters[name]) for name in learned if name != "weight"
    }
    for form, run in members.form_runs:
        if "bias" in form.learned:
            torch.sum(g[:, run], dim=-1, out=gradient["bias"][:, run])
    members.divide_by_norm(g, z)
    rows = torch.bmm(g.flatten(1, 2), z).view_as(members.parameters["weight"])
    gradient["weight"] = rows
    for form, run in members.form_runs:
        d = rows[:, run]
        for name, value in form.pull_back(members.part(form, run), d).items():
            if value is not d:
                gradient[name][:, run] = value
    return gradient


def _touched(members: Members, present: Tensor, share: Tensor | None) -> Tensor | None:
    """Say which rows (S, K, N) move: under "exact" a mask leaves absent classes as they are."""
    masked = members.seen is not None and bool(members.mask_runs)
    if not masked and share is None:
        return None
    touched = torch.ones_like(members.parameters["weight"][..., 0])
    if masked:
        for _, run in members.mask_runs:
            touched[:, run] = present
    return touched if share is None else touched * (share > 0).any(dim=1)[:, None, None]


def _descend(members: Members, gradient: dict[str, Tensor], touched: Tensor | None) -> None:
    """Clip each member's gradient, and move by the momentum of all it has had."""
    norm = torch.linalg.vector_norm(_norms(gradient, members.lr), dim=0)
    lost = ~torch.isfinite(norm) & (members.diverged < 0)
    torch.where(lost, members.steps, members.diverged, out=members.diverged)
    clip = (CLIP / (norm + 1e-6)).clamp(max=1)
    for name, g in gradient.items():
        velocity = members.velocity[name]
        g *= _as(g, clip)
        if touched is None:
            rate: Tensor = _as(g, members.lr)
            velocity *= MOMENTUM
        else:
            moves = _as(g, touched if g.dim() > 2 else touched.amax(dim=-1))
            rate = _as(g, members.lr) * moves
            velocity *= 1 + moves * (MOMENTUM - 1)
        velocity += g
        members.parameters[name].addcmul_(velocity, rate, value=-1)


def _norms(parts: Mapping[str, Tensor], lr: Tensor) -> Tensor:
    """Give the norm of each part for each member, (parts, S, K)."""
    flat = [part.reshape(*lr.shape, -1) for part in parts.values()]
    return torch.stack([torch.linalg.vector_norm(part, dim=-1) for part in flat])


def _as(tensor: Tensor, x: Tensor) -> Tensor:
    """Append dimensions to ``x`` until it broadcasts against ``tensor``."""
    return x.view(*x.shape, *(1,) * (tensor.dim() - x.dim()))


def _runs(items: Sequence[T]) -> list[tuple[T, slice]]:
    runs, start = [], 0
    for item, group in groupby(items):
        stop = start + len(list(group))
        runs.append((item, slice(start, stop)))
        start = stop
    return runs
