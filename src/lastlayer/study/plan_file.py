"""Plans: what a study runs, as a TOML file; every mistake in one is reported with its place."""

import tomllib
from collections.abc import Iterator
from itertools import product
from math import prod
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, ValidationError, model_validator

from lastlayer.catalogue.head_cards import CODES, PAPER_HEADS, card_of, split_name
from lastlayer.core.checks import expect, short
from lastlayer.core.files import reading
from lastlayer.core.names import look_up
from lastlayer.data.load import SHORT
from lastlayer.errors import MissingFileError, PlanError, UnknownNameError
from lastlayer.heads.head import Preset
from lastlayer.study.plan_fields import (
    Batches,
    Codes,
    Gains,
    Heads,
    Many,
    Rate,
    Scenarios,
    Seeds,
    Size,
    Starts,
    Strict,
)
from lastlayer.study.run import Run

# The paper's plan is the paper's, and that of whole networks is replay's.
_FILES = sorted(Path(__file__).parents[1].glob("*/plans/*.toml"), key=lambda path: path.stem)
SHIPPED = {path.stem: path for path in _FILES}
MOST_BYTES = 1_000_000  # of a plan's file
MOST_SLIPS = 20  # named in a message
MOST_RUNS = 1_000_000  # of a plan
Options = dict[str, Any]  # of a run: lr, start, gain and batch_size, where its head has them


class Experiment(Strict):
    """A block of a plan: every combination of what it lists is a run."""

    features: Annotated[tuple[str, ...], Many, Field(min_length=1)]
    scenario: Scenarios
    heads: Heads = PAPER_HEADS
    preset: Preset | None = None  # None: the plan's
    seeds: Seeds | None = None  # None: the plan's
    lr: Annotated[tuple[Rate, ...], Many, Field(min_length=1)] | None = None
    subset: Annotated[tuple[Size, ...], Many, Field(min_length=1)] = ("all",)
    held_out: Annotated[float, Field(gt=0, lt=1)] | None = None  # measure on this part of train
    start: Starts | None = None  # of the first rows; a head without a choice has none
    gain: Gains | None = None  # of weight_norm
    batch_size: Batches | None = None  # of heads trained by gradient
    code: Codes | None = None  # of the authors: start, gain and batch size; the first it stands for
    why: str = ""  # it stands for that code
    optional: bool = False  # features that are not there are left out

    @model_validator(mode="after")
    def _check_code(self) -> Self:
        if bool(self.code) != bool(self.why):
            raise ValueError(
                "'code' and 'why' go together: which version of the authors' code the block "
                "stands for, and why"
            )
        if self.code and (self.start or self.gain or self.batch_size):
            raise ValueError(
                "a block takes either 'code' or 'start', 'gain' and 'batch_size', got both"
            )
        return self

    def runs(self, plan: "Plan") -> Iterator[Run]:
        """Yield every combination, seeds last."""
        heads = list(self._heads(self.preset or plan.preset))
        seeds = self.seeds or plan.seeds
        kinds = product(self.features, self.scenario, self.subset, heads, seeds)
        for features, scenario, subset, (head, options), seed in kinds:
            data = held_out_name(SHORT.get(features, features), self.held_out)
            base, mask = split_name(head)
            # As in the paper, the seed also orders the tasks if there are several.
            order = 0 if scenario.kind == "iid" else seed
            size = None if isinstance(subset, str) else subset
            yield Run(data, scenario, base, mask, order=order, seed=seed, subset=size, **options)

    def count(self, plan: "Plan") -> int:
        """Return how many runs it makes."""
        kinds = self.features, self.scenario, self.subset, self.seeds or plan.seeds
        return prod(map(len, kinds)) * sum(1 for _ in self._heads(self.preset or plan.preset))

    def _heads(self, preset: Preset) -> Iterator[tuple[str, Options]]:
        """Yield each head with each of its options; those it does not have are left out."""
        choices = [vars(CODES[code]) for code in self.code or ()] or [
            {"start": start, "gain": gain, "batch_size": size}
            for start in self.start or (None,)
            for gain in self.gain or (None,)
            for size in self.batch_size or (None,)
        ]
        for head in self.heads:
            card = card_of(head)
            has = {
                "start": card.starts and preset == "paper",
                "gain": card.gains,
                "batch_size": card.by_gradient,
            }
            own = [{name: value for name, value in each.items() if has[name]} for each in choices]
            for place, options in enumerate(own):
                if options not in own[:place]:
                    for lr in (self.lr if card.by_gradient else None) or (None,):
                        yield head, {"preset": preset, "lr": lr, **options}


# Named, not imported: whole networks use this package, and not the other way round. They are
# loaded for a plan that has some.
_REPLAY = "lastlayer.replay.study.network_run:Replay"


def _replay(value: Any) -> Any:
    return resolve_name(_REPLAY).model_validate(value)


class Plan(Strict):
    """What a study runs."""

    preset: Preset
    experiment: tuple[Experiment, ...] = ()
    replay: tuple[Annotated[Any, PlainValidator(_replay)], ...] = ()
    seeds: Seeds = tuple(range(8))

    @model_validator(mode="after")
    def _check_runs(self) -> Self:
        if not self.experiment and not self.replay:
            raise ValueError("a plan must have at least one [[experiment]] or [[replay]]")
        runs = sum(experiment.count(self) for experiment in self.experiment)
        runs += sum(replay.count(self.seeds) for replay in self.replay)
        if runs > MOST_RUNS:
            raise ValueError(f"a plan must have at most {MOST_RUNS:,} runs, got {runs:,}")
        return self


def read_plan(name: str) -> tuple[Plan, str]:
    """Return a shipped plan by its name, or read a TOML file; and its text.

    >>> plan, text = read_plan("demo")
    >>> plan.preset, len(plan.experiment)
    ('paper', 2)
    """
    expect(name, str, "name", "the name of a plan, or of a .toml file")
    path = SHIPPED.get(name, Path(name))
    if name not in SHIPPED and path.suffix != ".toml":
        look_up(name, SHIPPED, "plan (or give a .toml file)")
    if not path.exists():
        raise MissingFileError(f"no plan at {path}; the shipped ones are: {', '.join(SHIPPED)}")
    with reading(path, "a plan") as file:
        text = _read_text(file)
        try:
            return Plan.model_validate(tomllib.loads(text)), text
        except ValidationError as error:
            slips = [_slip(slip) for slip in error.errors()[:MOST_SLIPS]]
            if (more := error.error_count() - MOST_SLIPS) > 0:
                slips.append(f"and {more} more")
            raise PlanError(f"{path}: {'; '.join(slips)}") from None
        except RecursionError:
            raise PlanError(f"{path} is not a plan: lists or tables nested too deeply") from None
        except ValueError as error:
            raise PlanError(f"{path} is not valid TOML: {error}") from None


def _read_text(file: Path) -> str:
    """Return the text of a plan's file."""
    if file.stat().st_size > MOST_BYTES:
        raise PlanError(f"a plan must have at most {MOST_BYTES:,} bytes, but {file} is larger")
    content = file.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PlanError(
            f"{file} is not valid TOML: expected UTF-8 text, got the byte "
            f"{content[error.start]:#04x} in line {line}"
        ) from None


def held_out_name(features: str, share: float | None) -> str:
    """Return the name of features whose test data are held out of their training data.

    >>> held_out_name("mine.safetensors", 0.2)
    'mine.safetensors (0.2 held out)'
    """
    return features if share is None else f"{features} ({share:g} held out)"


def _slip(slip: Any) -> str:
    """Return a message saying where a plan is wrong, and how."""
    if slip["type"] == "extra_forbidden":
        *parents, last = slip["loc"]
        return f"{_place(parents)}{_unknown_key(str(last), parents)}"
    place, kind = _place(slip["loc"]), slip["type"]
    if kind == "missing":
        return f"{place}missing: write {EXAMPLES.get(slip['loc'][-1], slip['loc'][-1])}"
    if slip["loc"] in (("experiment",), ("replay",)) and isinstance(slip["input"], dict):
        return f"{place}write [[{slip['loc'][0]}]], in double brackets"
    message = WORDS.get(kind, slip["msg"].removeprefix("Value error, "))
    got = "" if kind == "value_error" else f", got {short(repr(slip['input']))}"
    return f"{place}{message}{got}"


def _unknown_key(key: str, parents: list[Any]) -> str:
    """Return what is wrong with a key: it belongs elsewhere, or is unknown."""
    blocks: dict[str, type[Strict]] = {"experiment": Experiment, "replay": resolve_name(_REPLAY)}
    homes = [f"[[{name}]]" for name, block in blocks.items() if key in block.model_fields]
    if key in Plan.model_fields:
        homes.append("the top of the plan")
    if homes:
        return f"'{key}' belongs in {' or '.join(homes)}, not here"
    known = (blocks[parents[0]] if parents else Plan).model_fields
    try:
        return str(look_up(key, known, "key"))
    except UnknownNameError as error:  # always: it is unknown
        return str(error)


EXAMPLES = {
    "preset": 'preset = "paper", or "exact"',
    "features": 'features = "cifar10"',
    "scenario": 'scenario = "incremental:5"',
}
WORDS = {"tuple_type": "must be a list", "too_short": "must have at least one"}


def _place(location: Any) -> str:
    """Write ("experiment", 1, "heads", 0) as "experiment[1].heads[0]: "."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{text.lstrip('.')}: " if text else ""
