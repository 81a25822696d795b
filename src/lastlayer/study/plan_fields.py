"""The fields of a plan's blocks: each kind of value, how it is read, and what is refused."""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from lastlayer.catalogue.head_cards import CODES, GAINS, PAPER_HEADS, STARTS, all_heads, split_name
from lastlayer.core.checks import short
from lastlayer.core.names import look_up
from lastlayer.scenarios.spec import ScenarioSpec
from lastlayer.study.run import MOST_BATCH, MOST_DRAWN, MOST_SEED

MOST_SEEDS = 10_000  # of a plan or a block
MOST_TASKS = 1_000_000
# Names that stand for several heads.
SEVERAL: dict[str, Callable[[], tuple[str, ...]]] = {"paper": lambda: PAPER_HEADS, "all": all_heads}


def _many(value: Any) -> Any:
    """Return a list; a single value becomes a list of one."""
    return value if isinstance(value, list | tuple) else [value]


def read_seeds(value: Any) -> tuple[int, ...]:
    """Read "0-7", "0-3,6", a number, or a list of numbers."""
    if isinstance(value, list) and all(type(seed) is int for seed in value):
        seeds = value
    else:
        ranges = [re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", part) for part in _parts(value)]
        if not all(ranges):
            raise ValueError(f'seeds must be "0-7", 3 or [0, 1], got {short(value)!r}')
        ends = [(int(found[1]), int(found[2] or found[1])) for found in ranges if found]
        if sum(max(last - first, 0) + 1 for first, last in ends) > MOST_SEEDS:
            raise ValueError(f"there must be at most {MOST_SEEDS} seeds, got {short(value)}")
        seeds = [seed for first, last in ends for seed in range(first, last + 1)]
    if not seeds or not 0 <= min(seeds) <= max(seeds) <= MOST_SEED:
        raise ValueError(f"there must be at least one seed, from 0 to 2³²−1, got {short(value)}")
    if len(seeds) > MOST_SEEDS:
        raise ValueError(f"there must be at most {MOST_SEEDS} seeds, got {len(seeds)}")
    return tuple(dict.fromkeys(seeds))


def _parts(value: Any) -> list[str]:
    return [part.strip() for part in str(value).split(",")]


def _scenario(value: Any) -> ScenarioSpec:
    """Read a name, "incremental:5", or a table with kind and its argument."""
    if isinstance(value, ScenarioSpec):
        return value
    if isinstance(value, str):
        return ScenarioSpec.parse(value)
    if not isinstance(value, dict) or "kind" not in value:
        raise ValueError(f'must be a name or {{ kind = "…" }}, got {value!r}')
    for key in value:
        look_up(key, ScenarioSpec.__dataclass_fields__, "key of a scenario")
    for key in ("kind", "by", "label"):
        if not isinstance(value.get(key, ""), str):
            raise ValueError(f"'{key}' must be text, got {value[key]!r}")
    tasks = value.get("tasks", 1)
    counts = tasks if isinstance(tasks, list) else [tasks]
    if not all(type(n) is int and 0 < n <= MOST_TASKS for n in counts):
        raise ValueError(f"tasks must be a number, or the classes of each, got {short(tasks)!r}")
    return ScenarioSpec(**value)


def _head(value: Any) -> str:
    """Check the name of a head with its mask."""
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a head, got {value!r}")
    split_name(value)
    return value


def _heads(value: Any) -> Any:
    """Return a list of heads; "paper" and "all" stand for the paper's heads and for all heads."""
    named: list[Any] = []
    for name in _many(value):
        named += SEVERAL[name]() if isinstance(name, str) and name in SEVERAL else [name]
    return list(dict.fromkeys(named)) if all(isinstance(n, str) for n in named) else named


def _size(value: Any) -> Any:
    """Check a number of samples, or "all"."""
    if value != "all" and not (type(value) is int and 0 < value <= MOST_DRAWN):
        raise ValueError(
            f'must be a number of samples from 1 to {MOST_DRAWN:,}, or "all", got {short(value)}'
        )
    return value


def one_of(names: Iterable[str], kind: str) -> PlainValidator:
    """Check that a value is one of a few names."""
    known = dict.fromkeys(names)

    def check(value: Any) -> str:
        look_up(str(value), known, kind)
        return str(value)

    return PlainValidator(check)


Many = BeforeValidator(_many)
_Some = Field(min_length=1)
Seeds = Annotated[tuple[int, ...], PlainValidator(read_seeds)]
Scenarios = Annotated[tuple[Annotated[ScenarioSpec, PlainValidator(_scenario)], ...], Many, _Some]
Heads = Annotated[tuple[Annotated[str, PlainValidator(_head)], ...], BeforeValidator(_heads), _Some]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Starts = Annotated[tuple[Annotated[str, one_of(STARTS, "start")], ...], Many, _Some]
Gains = Annotated[tuple[Annotated[str, one_of(GAINS, "gain")], ...], Many, _Some]
Codes = Annotated[tuple[Annotated[str, one_of(CODES, "code of the authors")], ...], Many, _Some]
Batches = Annotated[
    tuple[Annotated[int, Field(ge=2, le=MOST_BATCH, strict=True)], ...], Many, _Some
]
Size = Annotated[int | Literal["all"], PlainValidator(_size)]


class Strict(BaseModel):
    """A block that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
