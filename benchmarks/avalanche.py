"""Avalanche beside the fleet and the slda head: ratios, in one run, on the same data.

make bench-avalanche                       # makes .venv-avalanche first, with PyTorch's large build
python -m benchmarks.avalanche             # in such an environment, from the project's root

Every side goes once through the same samples in shuffled batches. The fleet trains all fifteen
combinations of layer and mask; the loops and Naive only the linear layer without a mask, and Naive
does not clip gradients, as the others do. StreamingLDA predicts every batch that it learns, so the
slda head is measured with and without doing that.
"""

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable

import torch
from benchmarks.fleet import COMBINATIONS, Case, fleet_epoch, loop_epoch, seconds
from torch import nn
from torch.utils.data import TensorDataset

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.evaluate.pool import BATCH_SIZE, Pool, shuffled_batches
from lastlayer.heads import Head, make_head
from lastlayer.heads.gradient.descent import MOMENTUM

warnings.filterwarnings("ignore", "no QP solver found")  # Avalanche looks for one, GEM needs it
warnings.filterwarnings("ignore", "No loggers specified")  # on purpose
try:
    from avalanche.benchmarks import DatasetExperience, benchmark_from_datasets  # type: ignore[import-not-found]
    from avalanche.benchmarks.utils import AvalancheDataset  # type: ignore[import-not-found]
    from avalanche.training.plugins import EvaluationPlugin  # type: ignore[import-not-found]
    from avalanche.training.supervised import Naive, StreamingLDA  # type: ignore[import-not-found]
except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision for another PyTorch
    sys.exit(
        f"expected Avalanche 0.6.0, which cannot be imported here ({error}); "
        "'make bench-avalanche' makes an environment that has it"
    )

CASE = Case(50_000, 64, 10)
Times = dict[str, list[float]]  # seconds per run and epoch, one for each round


def experience_of(pool: Pool) -> DatasetExperience:
    """Make one Avalanche experience of all samples."""
    dataset = AvalancheDataset([TensorDataset(pool.z, pool.y)])
    return benchmark_from_datasets(train=[dataset]).train_stream[0]


def naive_epoch(pool: Pool) -> Callable[[], None]:
    model = nn.Linear(pool.z.shape[1], pool.n_classes)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), HEADS["linear"].lr, MOMENTUM),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH_SIZE,
        evaluator=EvaluationPlugin(),
    )
    experience = experience_of(pool)
    return lambda: strategy.train(experience)


def streaming_lda(pool: Pool) -> StreamingLDA:
    return StreamingLDA(
        slda_model=nn.Identity(),
        criterion=nn.CrossEntropyLoss(),
        input_size=pool.z.shape[1],
        num_classes=pool.n_classes,
        train_mb_size=BATCH_SIZE,
        evaluator=EvaluationPlugin(),
    )


def slda_epoch(pool: Pool, head: Head, predict: bool) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        for rows in shuffled_batches(len(pool.y), BATCH_SIZE, generator):
            z = pool.z.index_select(0, rows)  # several times as fast as pool.z[rows]
            head.observe(z, pool.y.index_select(0, rows))
            if predict:
                head(z)

    return run


def take_turns(sides: dict[str, Callable[[], None]], rounds: int) -> Times:
    """Interleave all sides, so that other work on the machine affects all of them alike."""
    times: Times = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            times[name].append(seconds(run))
    return times


def show(title: str, times: Times) -> None:
    """Print each side's median, and the median over rounds of its ratio to the first side."""
    first = next(iter(times.values()))
    print(f"\n{title}; per run and epoch:")
    for name, values in times.items():
        ratio = statistics.median(t / own for t, own in zip(values, first, strict=True))
        print(f"  {name:34} {1e3 * statistics.median(values):9.2f} ms {ratio:7.1f} ×")


def compare_gradient(pool: Pool, rounds: int) -> None:
    n_members = CASE.orders * len(COMBINATIONS)
    fleet = f"fleet of {n_members}"
    sides = {
        fleet: fleet_epoch(pool, CASE),
        "tight loop": loop_epoch(pool, "linear", "none", tight=True),
        "DataLoader loop": loop_epoch(pool, "linear", "none", tight=False),
        "Avalanche's Naive": naive_epoch(pool),
    }
    times = take_turns(sides, rounds)
    times[fleet] = [t / n_members for t in times[fleet]]
    show(f"{CASE}, batch {BATCH_SIZE}, trained by gradient", times)


def compare_slda(pool: Pool, rounds: int) -> None:
    """Check that preset "paper", which has StreamingLDA's arithmetic, predicts the same."""
    exact, paper = (make_head("slda", CASE.h, CASE.n_classes, preset=p) for p in ("exact", "paper"))
    theirs, experience = streaming_lda(pool), experience_of(pool)
    sides = {
        "slda": slda_epoch(pool, exact, predict=False),
        "slda, paper, predicts each batch": slda_epoch(pool, paper, predict=True),
        "Avalanche's StreamingLDA": lambda: theirs.train(experience),
    }
    show(f"{CASE}, batch {BATCH_SIZE}, streaming LDA", take_turns(sides, rounds))
    same = paper.predict(pool.z) == theirs.predict(pool.z).argmax(dim=1)
    print(f"  the latter two predict the same class for {same.double().mean():.2%} of the samples")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    pool = CASE.pool()
    compare_gradient(pool, arguments.rounds)
    compare_slda(pool, arguments.rounds)


if __name__ == "__main__":
    main()
