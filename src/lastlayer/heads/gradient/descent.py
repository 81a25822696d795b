"""The one update step of the gradient layers: mask, gradient, clip, momentum, for many members."""

import torch
from torch import Tensor

from lastlayer.heads.gradient.members import Members, norms

MOMENTUM = 0.9
CLIP = 10.0


def step(members: Members, z: Tensor, y: Tensor, share: Tensor | None = None) -> None:
    """Take one step of SGD with momentum on one mini-batch per stream: z (S, n, h), y (S, n).

    ``share`` (S, n) is the weight of each sample in its batch's mean loss; None: 1/n. A stream
    whose shares are all zero does not move: batches of different sizes are padded with 0.
    """
    # The gradients are written out in closed form: autograd would build a graph at every step, and
    # could not train thousands of members at once. Tests compare them with autograd's.
    rows, inverse = members.rows()
    inverse_z = members.inverse_input(z)
    target = _one_hot(y, share, rows)
    present = target.amax(dim=-1)  # (S, 1, N)
    if members.seen is not None:
        # A class counts as seen from the batch that brings it: its own logit must take part now.
        torch.maximum(members.seen, present[:, 0], out=members.seen)
    g = _loss_gradient(members, members.scores(z, rows, inverse_z), target)
    if share is not None:
        g *= share[:, None, None, :]
    mean = 1 / y.shape[1] if share is None else 1.0
    gradient, factor = _gradient(members, z, g, rows, inverse=inverse, inverse_z=inverse_z)
    _descend(members, gradient, factor * mean, mean, _touched(members, present, share))
    members.steps += 1


def _one_hot(y: Tensor, share: Tensor | None, like: Tensor) -> Tensor:
    """Return the one-hot targets (S, 1, N, n); a sample without weight has none."""
    real = torch.ones_like(y, dtype=like.dtype) if share is None else (share > 0).to(like.dtype)
    empty = like.new_zeros(y.shape[0], 1, like.shape[2], y.shape[1])
    return empty.scatter_(2, y[:, None, None, :], real[:, None, None, :])


def _loss_gradient(members: Members, scores: Tensor, target: Tensor) -> Tensor:
    """Return softmax − one-hot of the masked logits, masked again (S, K, N, n)."""
    keeps = [(run, keep(target)) for keep, run in members.masked]
    for run, keep in keeps:
        scores[:, run] *= keep  # a masked logit is 0, not −∞, as in the paper: exp(0) still counts
    if members.seen is not None:
        scores.masked_fill_((members.seen == 0)[:, None, :, None], -torch.inf)
    g = torch.softmax(scores, dim=2)
    g -= target
    for run, keep in keeps:
        g[:, run] *= keep
    return g


def _gradient(
    members: Members,
    z: Tensor,
    g: Tensor,
    rows: Tensor,
    *,
    inverse: Tensor | None,
    inverse_z: Tensor,
) -> tuple[dict[str, Tensor], Tensor]:
    """Turn the gradient g on the logits into one on each learned parameter.

    With d_i = Σ_n g_ni x_n: ∂b_i = Σ_n g_ni, ∂gain_i = d_i·a_i, and ∂A_i = gain_i d_i, of which
    a unit row takes only the part across its direction, (d_i − (d_i·a_i) a_i)/‖A_i‖.

    The weight's gradient lacks a factor (S, K, N, 1) for each row, gain/‖A‖, which is returned
    separately: it joins the learning rate later, which saves a pass over all weights.
    """
    gradient = {
        name: torch.zeros_like(members.parameters[name]) for name in members.learned - {"weight"}
    }
    for run in members.biased:
        torch.sum(g[:, run], dim=-1, out=gradient["bias"][:, run])
    for run in members.unit_input:
        g[:, run] *= inverse_z
    d = torch.bmm(g.flatten(1, 2), z).view_as(rows)
    factor = torch.ones_like(rows[..., :1]) if inverse is None else inverse
    for form, run in members.gained:
        factor[:, run] *= members.gain(form, run).unsqueeze(-1)
    along = torch.zeros_like(factor)
    for run in members.unit_rows:
        torch.sum(d[:, run] * rows[:, run], dim=-1, keepdim=True, out=along[:, run])
        # Moving along its own direction does not change a normalised row: take that part out.
        d[:, run].addcmul_(rows[:, run], along[:, run], value=-1)
    for form, run in members.gained:
        if form.gain in form.learned:
            whole = along[:, run, :, 0]
            gradient[form.gain][:, run] = whole if form.gain == "gamma" else whole.sum(dim=-1)
    gradient["weight"] = d
    return gradient, factor


def _touched(members: Members, present: Tensor, share: Tensor | None) -> Tensor | None:
    """Return which rows (S, K, N) move; None: all. Under "exact" a mask spares absent classes."""
    masked = members.seen is not None and bool(members.masked)
    if not masked and share is None:
        return None
    touched = torch.ones_like(members.parameters["weight"][..., 0])
    if masked:
        for _, run in members.masked:
            touched[:, run] = present
    return touched if share is None else touched * (share > 0).any(dim=1)[:, None, None]


def _descend(
    members: Members,
    gradient: dict[str, Tensor],
    factor: Tensor,
    mean: float,
    touched: Tensor | None,
) -> None:
    """Clip each member's gradient, add it to the velocity, and move along that."""
    weight = torch.linalg.vector_norm(gradient["weight"], dim=-1) * factor[..., 0]
    small = {name: g.mul_(mean) for name, g in gradient.items() if name != "weight"}
    norm = norms({"weight": weight, **small}, members.lr)
    # Only the first such step counts, and it is noted without asking the device to wait.
    lost = ~torch.isfinite(norm) & (members.diverged < 0)
    torch.where(lost, members.steps + 1, members.diverged, out=members.diverged)
    clip = (CLIP / (norm + 1e-6)).clamp(max=1)
    for name, g in gradient.items():
        velocity, rate = members.velocity[name], _like(g, members.lr)
        if touched is None:
            velocity *= MOMENTUM
        else:
            moves = _like(g, touched if g.dim() > 2 else touched.amax(dim=-1))
            velocity *= 1 + moves * (MOMENTUM - 1)  # rows that stand still keep their velocity
            rate = rate * moves
        velocity.addcmul_(g, _like(g, clip) * factor if name == "weight" else _like(g, clip))
        members.parameters[name].addcmul_(velocity, rate, value=-1)


def _like(tensor: Tensor, x: Tensor) -> Tensor:
    """Append dimensions to ``x`` until it broadcasts against ``tensor``."""
    return x.view(*x.shape, *(1,) * (tensor.dim() - x.dim()))
