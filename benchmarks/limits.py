"""How far the best head is from the best classifier of any kind, retrained on everything.

    python -m benchmarks.limits [--sets DIR] [--out results/benchmarks]
    python -m benchmarks.limits --rows 5000 --widths 5000 --fourier 2048 --tuned 2500   # on a CPU
    python -m benchmarks.limits --table                  # the page of what is there

DIR is what `python -m benchmarks.regret_sets` makes; without it the bundled sets and scikit-learn's
are taken. References are retrained in the same run: softmax regression, linear and over 8,192
Fourier features; exact Gaussian kernel ridge regression; a network of two layers (AdamW, dropout).
Their settings, the best of them, and the head among the candidates are chosen on a fifth of the
training rows; then each learns all of them, and is tested once. Intervals are paired, 95 %.
With --rows, fewer rows are drawn, and at most 4,000 are tested on. It needs PyTorch, NumPy,
safetensors and scikit-learn beside lastlayer, and for all rows a GPU.

limits.csv has a row for each stream, written as soon as it is known; what is there is not made
again. limits.md is the page: the table, and what it says of each goal, with the streams that miss
it by their means and those that miss it beyond their intervals.
"""

import argparse
import csv
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.penalty_rules import Rows, streams
from torch import Tensor, nn

from lastlayer.catalogue.head_cards import card_of
from lastlayer.catalogue.map_widths import MAP_ROWS
from lastlayer.evaluate.softmax import reference
from lastlayer.heads import make_head, make_map
from lastlayer.heads.neighbours.kernel_factor import Kernel

SMALL, ALL = 400e6, 1 << 36  # bytes of statistics; bytes that may be used here
Row = dict[str, Any]
Predict = Callable[[Tensor], Tensor]  # queries to classes
Fit = Callable[[Tensor, Tensor, int], Predict]


def of_head(name: str, options: dict[str, Any], z: Tensor, y: Tensor, n_classes: int) -> Predict:
    head = make_head(name, z.shape[1], n_classes, **options).to(z.device)
    for rows, labels in zip(z.split(4096), y.split(4096), strict=True):
        head.observe(rows, labels)
    return head.predict


def candidates(h: int, n_classes: int, widths: Sequence[int]) -> Iterator[tuple[str, float, Fit]]:
    """Yield the name of each head, the bytes of its state (0: it keeps rows), and its fit."""
    wider = [f"{name}@{width}" for name in ("random_ridge", "random_slda") for width in widths]
    for name in ("ridge", "slda", "random_ridge", "random_slda", *wider):
        yield name, card_of(name).size(h, n_classes, MAP_ROWS), partial(of_head, name, {})
    yield "kernel_ridge", 0, partial(of_head, "kernel_ridge", {"budget": ALL})


def of_softmax(width: int, z: Tensor, y: Tensor, n_classes: int) -> Predict:
    feature_map = (
        make_map("fourier", z.shape[1], width).to(z.device).fit(z[:1000]) if width else None
    )
    return reference(z, y, n_classes, map=feature_map, quick=True).predict


class Kernels:
    """Exact kernel ridge regression without an approximation of any kind."""

    def __init__(self, z: Tensor, y: Tensor, n_classes: int, bandwidth: float) -> None:
        self.kernel = Kernel(z[:1000].double().mean(dim=0), bandwidth)
        self.points = self.kernel.points(z)
        self.matrix = self.kernel.between(self.points, self.points)
        targets = torch.nn.functional.one_hot(y, n_classes).double()
        self.targets = torch.cat([targets, torch.ones_like(targets[:, :1])], dim=1)

    def solve(self, penalty: float) -> Predict:
        self.matrix.diagonal().fill_(1 + penalty)
        root = torch.linalg.cholesky(self.matrix)
        solved = torch.cholesky_solve(self.targets, root)
        bias = solved[:, :-1].sum(dim=0) / solved[:, -1].sum()
        dual = solved[:, :-1] - torch.outer(solved[:, -1], bias)

        def predict(z: Tensor) -> Tensor:
            parts = (self.kernel.between(self.kernel.points(q), self.points) for q in z.split(2000))
            return torch.cat([(part @ dual + bias).argmax(dim=1) for part in parts])

        return predict


def kernel_grid(z: Tensor) -> Iterator[tuple[float, float]]:
    centred = z.double() - z.double().mean(dim=0)
    spread = math.sqrt(float(centred.square().sum(dim=1).mean()))
    for k in range(-4, 3):
        for exponent in range(-7, 3):
            yield spread * 2 ** (k / 2), 10 ** (exponent / 2)


def tuned_kernel(
    train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], n_classes: int, most: int
) -> Fit:
    """Return the kernel whose bandwidth and penalty get most held-out rows right."""
    best, chosen, made = -1.0, (1.0, 1.0), (0.0, None)
    z, y = (part[:most] for part in train)
    for bandwidth, penalty in kernel_grid(z):
        if made[0] != bandwidth:
            made = bandwidth, Kernels(z, y, n_classes, bandwidth)
        right = accuracy(made[1].solve(penalty), held)
        if right > best:
            best, chosen = right, (bandwidth, penalty)
    return lambda z, y, n_classes: Kernels(z, y, n_classes, chosen[0]).solve(chosen[1])


def of_network(hidden: int, dropout: float, z: Tensor, y: Tensor, n_classes: int) -> Predict:
    """Train two layers on standardised features for 40 epochs, the rate falling as a cosine."""
    torch.manual_seed(0)
    centre, scale = z.mean(dim=0), z.std(dim=0).clamp(min=1e-6)
    net = nn.Sequential(
        nn.Dropout(dropout / 2), nn.Linear(z.shape[1], hidden), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(hidden, n_classes),
    ).to(z.device)  # fmt: skip
    size, epochs = min(256, max(len(y) // 8, 8)), 40
    steps = epochs * -(-len(y) // size)
    adam = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.05)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(y), device=z.device).split(size):
            adam.zero_grad(set_to_none=True)
            logits = net((z[rows] - centre) / scale)
            nn.functional.cross_entropy(logits, y[rows]).backward()
            adam.step()
            falling.step()
    net.eval()

    def predict(queries: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = net((queries - centre) / scale).argmax(dim=1)
        return found

    return predict


def accuracy(predict: Predict, rows: tuple[Tensor, Tensor]) -> float:
    return 100 * float((predict(rows[0]) == rows[1]).double().mean())


def best_of(names: list[str], held: dict[str, float]) -> str:
    return max(names, key=lambda name: held[name])


def gap(theirs: Tensor, ours: Tensor) -> tuple[float, float]:
    """Return by how many points one is more often right than another, and its 95 % interval."""
    apart = 100 * (theirs.double() - ours.double())
    return float(apart.mean()), 1.96 * float(apart.std()) / math.sqrt(len(apart))


def row_of(name: str, rows: Rows, device: torch.device, asked_for: argparse.Namespace) -> Row:
    """Choose on held-out rows, test once, and return a row of the file."""
    z, y, test_z, test_y = (part.to(device) for part in rows)
    if asked_for.rows is not None:
        z, y = z[: asked_for.rows], y[: asked_for.rows]
        test_z, test_y = test_z[:4000], test_y[:4000]
    z, test_z = z.float(), test_z.float()
    n_classes, n = int(max(y.max(), test_y.max())) + 1, len(y)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(device)
    out, kept = order[: n // 5], order[n // 5 :]
    train, held_rows = (z[kept], y[kept]), (z[out], y[out])
    references: dict[str, Fit] = {
        "softmax": partial(of_softmax, 0),
        "softmax, Fourier": partial(of_softmax, asked_for.fourier),
        "kernel": tuned_kernel(train, held_rows, n_classes, asked_for.tuned),
    }
    networks = {(h, d): partial(of_network, h, d) for h in (512, 2048) for d in (0.3, 0.6)}
    by_net = {key: accuracy(fit(*train, n_classes), held_rows) for key, fit in networks.items()}
    references["network"] = networks[max(by_net, key=lambda key: by_net[key])]
    heads = {
        label: (size, fit)
        for label, size, fit in candidates(z.shape[1], n_classes, asked_for.widths)
    }
    fits = references | {label: fit for label, (_, fit) in heads.items()}
    held = {label: accuracy(fit(*train, n_classes), held_rows) for label, fit in fits.items()}
    chosen = {
        "small": best_of([k for k, (size, _) in heads.items() if 0 < size <= SMALL], held),
        "wide": best_of([k for k, (size, _) in heads.items() if size > 0], held),
        "any": best_of([*heads], held),
    }
    top, plain = best_of([*references], held), best_of(["slda", "ridge"], held)
    asked = {*references, *chosen.values(), "random_ridge", plain}
    right = {label: fits[label](z, y, n_classes)(test_z) == test_y for label in asked}
    found: Row = {"stream": name, "rows": n, "features": z.shape[1], "tested": len(test_y)}
    found |= {label: _share(right[label]) for label in references} | {"best": top}
    for which, head in chosen.items():
        lost = gap(right[top], right[head])
        found |= {which: head, f"{which}_accuracy": _share(right[head])}
        found |= dict(zip((f"{which}_gap", f"{which}_reach"), lost, strict=True))
    behind = gap(right[plain], right["random_ridge"])
    found |= {"random_ridge": _share(right["random_ridge"]), "plain": plain}
    return found | dict(zip(("behind", "behind_reach"), behind, strict=True))


def _share(right: Tensor) -> float:
    return 100 * float(right.double().mean())


GOALS = (  # which head, in words, the largest gap, and the largest mean of all streams
    ("small", "without rows kept, at most 400 MB", 2.0, 1.0),
    ("wide", "without rows kept, any size", 1.0, 0.5),
    ("any", "with rows kept", 0.5, 0.2),
)
BEHIND = (
    0.3  # points that random_ridge with its defaults may be behind the better of slda and ridge
)


def page(rows: list[Row], how: list[str]) -> Iterator[str]:
    """Yield the lines of the page: how it was made, what it says of the goals, and the table."""
    yield "# How far from the best of any kind\n"
    yield from (f"    {line}" for line in dict.fromkeys(how))
    yield (
        "\nFinal accuracy in %, and gaps in points with their paired 95 % intervals; a negative "
        "gap is a head that\nis ahead. The best of any kind, retrained on everything, and the head "
        "are chosen on a fifth of the training rows.\n"
    )
    yield "| goal | gap, mean | largest | beyond its interval on | by its mean on |"
    yield "|---" * 5 + "|"
    for which, words, most, mean in GOALS:
        yield _judged(rows, f"{which}_gap", f"{which}_reach", words, most, mean)
    words = "random_ridge by default, behind the better of slda and ridge"
    yield _judged(rows, "behind", "behind_reach", words, BEHIND, None)
    yield (
        "\n| stream | rows | features | tested | "
        + " | ".join(REFERENCES)
        + (
            " | best of any kind | at most 400 MB | no rows kept | any head "
            "| random_ridge, and how far behind the better of slda and ridge |"
        )
    )
    yield "|---" * (4 + len(REFERENCES) + 5) + "|"
    for row in rows:
        cells = [row[k] for k in ("stream", "rows", "features", "tested")]
        cells += [f"{row[k]:.1f}" for k in REFERENCES] + [row["best"]]
        for which in ("small", "wide", "any"):
            lost = _interval(row, f"{which}_gap", f"{which}_reach")
            cells.append(f"{row[f'{which}_accuracy']:.1f} {row[which]}: {lost}")
        cells.append(f"{row['random_ridge']:.1f}: {_interval(row, 'behind', 'behind_reach')}")
        yield "| " + " | ".join(map(str, cells)) + " |"


def _interval(row: Row, gap: str, reach: str) -> str:
    return f"{row[gap]:.1f} ± {row[reach]:.1f}"


def _judged(
    rows: list[Row], gap: str, reach: str, words: str, most: float, mean: float | None
) -> str:
    """Return a row of the goals: the streams that miss it, each with its gap."""
    over = [row for row in rows if row[gap] > most]
    sure = [row for row in over if row[gap] - row[reach] > most]
    found = sum(row[gap] for row in rows) / len(rows)
    of_all = f", on average {mean}" if mean is not None else ""
    met = "" if mean is None else (": met" if found <= mean else ": **missed**")

    def named(some: list[Row]) -> str:
        return (
            ", ".join(f"{row['stream']} ({_interval(row, gap, reach)})" for row in some) or "none"
        )

    return (
        f"| {words}: at most {most}{of_all} | {found:.2f}{met} | {max(r[gap] for r in rows):.1f} "
        f"| {named(sure)} | {named([row for row in over if row not in sure])} |"
    )


REFERENCES = ("softmax", "softmax, Fourier", "kernel", "network")


def read_rows(path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows of the file, numbers as numbers, and the command that made each."""
    if not path.exists():
        return [], []
    with path.open(newline="", encoding="utf-8") as file:
        found: list[Row] = [{k: _number(v) for k, v in row.items()} for row in csv.DictReader(file)]
    return found, [str(row.pop("command")) for row in found]


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


def add_row(path: Path, row: Row) -> None:
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            out.writeheader()
        out.writerow({k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()})


def main() -> None:
    """Add a row for each stream as soon as it is known, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"), help="folder")
    parser.add_argument("--streams", nargs="+", help="which, by the start of their names")
    parser.add_argument("--rows", type=int, help="at most so many training rows; None: all")
    parser.add_argument("--widths", type=int, nargs="+", default=[5000, 10_000])
    parser.add_argument("--fourier", type=int, default=8192, help="features of the softmax's map")
    parser.add_argument("--tuned", type=int, default=12_000, help="rows that tune the kernel")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no row after these")
    parser.add_argument("--table", action="store_true", help="make nothing more")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began, file = time.perf_counter(), asked.out / "limits.csv"
    done = {row["stream"] for row in read_rows(file)[0]}
    command = ["python -m benchmarks.limits", "--sets DIR" * (asked.sets is not None)]
    command += [f"--rows {asked.rows}"] if asked.rows else []
    command += [f"--widths {' '.join(map(str, asked.widths))}"]
    command += [f"--fourier {asked.fourier} --tuned {asked.tuned}"]
    for name, rows in () if asked.table else streams(asked.sets):
        wanted = asked.streams is None or name.startswith(tuple(asked.streams))
        if wanted and name not in done and time.perf_counter() - began < asked.seconds:
            found = row_of(name, rows, device, asked)
            add_row(file, found | {"command": " ".join(filter(None, command))})
            print(f"{time.perf_counter() - began:.0f} s: {found}", flush=True)
    found_rows, how = read_rows(file)
    text = "\n".join(page(found_rows, how)) + "\n"
    (asked.out / "limits.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
