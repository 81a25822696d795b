"""The columns of the table of runs: the one list of what is stored for a run, in words and types.

The table's DDL, the types in polars, the columns that ``Study.runs`` and ``Study.replay`` show, and
the table in results/paper/README.md are made from it. A new column is a line here, and needs a new
version of the file (results_file.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import polars as pl

Kind = Literal["head", "network"]
KINDS: tuple[Kind, ...] = ("head", "network")  # what a run is a run of
STATES = ("planned", "done", "failed")

SqlType = Literal["TEXT", "INTEGER", "REAL"]
PYTHON: dict[SqlType, tuple[type, ...]] = {"TEXT": (str,), "INTEGER": (int,), "REAL": (float,)}
POLARS: dict[SqlType, type[pl.DataType]] = {
    "TEXT": pl.String,
    "INTEGER": pl.Int64,
    "REAL": pl.Float64,
}


@dataclass(frozen=True)
class Column:
    """A column of the table of runs."""

    name: str
    type: SqlType
    meaning: str
    unit: str = ""
    of: tuple[Kind, ...] = KINDS  # the kinds of run that have it
    rule: str = ""  # what SQLite holds it to
    shown: bool = True  # in Study.runs and Study.replay

    @property
    def ddl(self) -> str:
        """Return the column as CREATE TABLE writes it."""
        return " ".join(filter(None, (f'"{self.name}"', self.type, self.rule)))


def _one_of(names: Sequence[str], column: str) -> str:
    values = ", ".join(f"'{name}'" for name in names)
    return f"NOT NULL DEFAULT '{names[0]}' CHECK ({column} IN ({values}))"


_text: Callable[..., Column] = partial(Column, type="TEXT")
_integer: Callable[..., Column] = partial(Column, type="INTEGER")
_real: Callable[..., Column] = partial(Column, type="REAL")
_NEEDED = "NOT NULL"
_SHARE, _SAMPLES = "share, 0 to 1", "test samples"
_counted = partial(_integer, unit=_SAMPLES, of=("head",))
_lost_share = partial(_real, unit=_SHARE, of=("network",))

# In the order of the file: a new one comes last.
COLUMNS: tuple[Column, ...] = (
    _integer("id", meaning="number of the row", rule="PRIMARY KEY", shown=False),
    _text("digest", meaning="name of the run: all that decides its numbers", unit="SHA-256",
          rule="NOT NULL UNIQUE"),
    _integer("generation", meaning="number of the plan that it first appeared in", rule=_NEEDED,
             shown=False),
    _text("state", meaning="planned, done or failed", rule=_one_of(STATES, "state")),
    _text("features", meaning="name of the data", rule=_NEEDED),
    _text("scenario", meaning="name, or kind:argument/label", rule=_NEEDED),
    _text("label", meaning="the label column that is learned", rule=_NEEDED),
    _text("head", meaning="head, or the layer on top of a network", rule=_NEEDED),
    _text("mask", meaning="none, single or group", rule=_NEEDED),
    _text("preset", meaning="exact or paper", rule=_NEEDED, of=("head",)),
    _real("lr", meaning="learning rate; null for a head without gradient"),
    _integer("order", meaning="seed of the order of tasks", rule=_NEEDED),
    _integer("seed", meaning="seed of first weights, shuffling and subset", rule=_NEEDED),
    _integer("subset", meaning="samples drawn, with replacement; null: all", unit="samples",
             of=("head",)),
    _integer("n_classes", meaning="classes"),
    _integer("n_tasks", meaning="tasks"),
    _integer("epochs", meaning="epochs of each task"),
    _real("final", meaning="accuracy on the whole test set at the end", unit=_SHARE),
    _real("average", meaning="average incremental accuracy", unit=_SHARE),
    _real("forgetting", meaning="average forgetting", unit="share, −1 to 1"),
    _real("backward_transfer", meaning="backward transfer", unit="share, −1 to 1"),
    _real("forward_transfer", meaning="forward transfer", unit="share, −1 to 1", of=("head",)),
    _integer("lost", meaning="right when their class was learned, wrong at the end; linear heads",
             unit=_SAMPLES),
    *(_integer(name, meaning="unused: a repair under its former name", of=("head",), shown=False)
      for name in ("lost_to_weights", "lost_to_interference", "lost_to_either", "lost_together")),
    _integer("diverged", meaning="when it diverged: no longer finite numbers",
             unit="step; epoch of a network"),
    _text("message", meaning="why it failed"),
    _real("balance", meaning="instances of an old class for each of a new one", of=("network",)),
    _integer("per_class", meaning="images of a class that are remembered", unit="images",
             of=("network",)),
    _integer("batch_size", meaning="batch size; null for a head without gradient", unit="samples"),
    _text("optimizer", meaning="adam or sgd", of=("network",)),
    _integer("images", meaning="trained on, in all epochs", unit="images", of=("network",)),
    _lost_share("lost_share_weights", meaning="share of weights in what was lost"),
    _lost_share("lost_share_interference", meaning="share of interference in what was lost"),
    _lost_share("lost_share_drift", meaning="share of projection drift; the three sum to 1"),
    _text("fingerprint", meaning="data and method that it was made with; null: the current ones",
          shown=False),
    _text("kind", meaning="head, or network (trained end to end)",
          rule=_one_of(KINDS, "kind"), shown=False),
    _real("clip", meaning="norm that gradients are clipped at; null: no clipping", of=("network",)),
    _text("start", meaning="first weights: of a head, uniform or normal where preset paper has "
          "both; of a network, pytorch's or the authors'"),
    _text("precision", meaning="float32, tf32 or bfloat16", of=("network",)),
    _text("arrays", meaning="a digest of each of its arrays, by name", unit="JSON",
          shown=False),
    _text("checksum", meaning="of all the other columns", unit="SHA-256", shown=False),
    _text("gain", meaning="fixed factor of weight_norm's logits: unit or frozen", of=("head",)),
    _counted("kept", meaning="right when their class was learned and at the end"),
    _counted("gained", meaning="right at the end only"),
    _counted("never_learned", meaning="wrong at both times"),
    _counted("repair_old_vectors", meaning="lost, and right again with its old vectors"),
    _counted("repair_no_later_classes", meaning="… without the classes that came later"),
    _counted("repair_either", meaning="… with either of the two"),
    _counted("repair_both", meaning="… with both only"),
    _counted("interference_size", meaning="a later class wins by its norm or bias"),
    _counted("interference_direction", meaning="a later class wins by its direction"),
)  # fmt: skip


def shown(kind: Kind) -> list[str]:
    """Return the columns that a table of one kind of run has."""
    return [column.name for column in COLUMNS if column.shown and kind in column.of]
