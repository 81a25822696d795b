"""Plans: what a study runs, as a TOML file; every slip in one is named by its place."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from lastlayer.errors import LastLayerError, MissingFileError, PlanError
from lastlayer.features.catalogue import SHORT
from lastlayer.heads import ALL_HEADS, split_name
from lastlayer.heads.gradient import LEARNING_RATES
from lastlayer.heads.head import Preset
from lastlayer.names import look_up
from lastlayer.study.run import Run
from lastlayer.study.scenario_spec import ScenarioSpec

SHIPPED = {path.stem: path for path in sorted((Path(__file__).parent / "plans").glob("*.toml"))}
T = TypeVar("T")


def _many(value: Any) -> Any:
    """Take one thing for a list of one."""
    return value if isinstance(value, list | tuple) else [value]


def _seeds(value: Any) -> tuple[int, ...]:
    """Read "0-7", "0-3,6", a number, or a list of numbers."""
    if isinstance(value, list) and all(type(seed) is int for seed in value):
        seeds = value
    else:
        try:
            ends = [part.split("-") for part in str(value).split(",")]
            seeds = [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)]
        except ValueError:
            raise ValueError(f'expected seeds as "0-7", 3 or [0, 1], got {value!r}') from None
    if not seeds or min(seeds) < 0:
        raise ValueError(f"expected at least one seed, from 0, got {value!r}")
    return tuple(dict.fromkeys(seeds))


def _scenario(value: Any) -> ScenarioSpec:
    """Read a name, "incremental:5", or a table with kind and its argument."""
    if isinstance(value, ScenarioSpec):
        return value
    if isinstance(value, str):
        return ScenarioSpec.parse(value)
    if not isinstance(value, dict) or "kind" not in value:
        raise ValueError(f'expected a name or {{ kind = "…" }}, got {value!r}')
    for key in value:
        look_up(key, ScenarioSpec.__dataclass_fields__, "key of a scenario")
    return ScenarioSpec(**value)


def _head(value: Any) -> str:
    """Take the name of a head with its mask."""
    if not isinstance(value, str):
        raise ValueError(f"expected the name of a head, got {value!r}")
    split_name(value)
    return value


Seeds = Annotated[tuple[int, ...], PlainValidator(_seeds)]
Scenarios = Annotated[
    tuple[Annotated[ScenarioSpec, PlainValidator(_scenario)], ...],
    BeforeValidator(_many),
    Field(min_length=1),
]
Heads = Annotated[tuple[Annotated[str, PlainValidator(_head)], ...], Field(min_length=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Size = Annotated[int, Field(ge=1)] | Literal["all"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Experiment(_Strict):
    """A block of a plan: every combination of what it lists is a run."""

    features: Annotated[tuple[str, ...], BeforeValidator(_many), Field(min_length=1)]
    scenario: Scenarios
    heads: Heads = tuple(ALL_HEADS)
    preset: Preset | None = None  # None: the plan's
    seeds: Seeds | None = None  # None: the plan's
    lr: Annotated[tuple[Rate, ...], BeforeValidator(_many), Field(min_length=1)] | None = None
    subset: Annotated[tuple[Size, ...], BeforeValidator(_many), Field(min_length=1)] = ("all",)
    held_out: Annotated[float, Field(gt=0, lt=1)] | None = None  # measure on this part of train
    optional: bool = False  # features that are not there are left out

    def runs(self, plan: "Plan") -> Iterator[Run]:
        """Give every combination, seeds last."""
        for features in self.features:
            data = held_out_name(SHORT.get(features, features), self.held_out)
            for scenario in self.scenario:
                for subset in self.subset:
                    for head, lr in self._heads():
                        for seed in self.seeds or plan.seeds:
                            yield _run(
                                data, scenario, head, self.preset or plan.preset, lr, subset, seed
                            )

    def _heads(self) -> Iterator[tuple[str, float | None]]:
        """Give each head with each learning rate; one without gradient has none."""
        for head in self.heads:
            rates = self.lr if split_name(head)[0] in LEARNING_RATES else None
            yield from ((head, lr) for lr in rates or (None,))


class Plan(_Strict):
    """What a study runs."""

    preset: Preset
    experiment: Annotated[tuple[Experiment, ...], Field(min_length=1)]
    seeds: Seeds = tuple(range(8))


def read_plan(name: str) -> tuple[Plan, str]:
    """Give a shipped plan by its name, or read a TOML file; and its text.

    >>> plan, text = read_plan("demo")
    >>> plan.preset, len(plan.experiment)
    ('paper', 2)
    """
    path = SHIPPED.get(name, Path(name))
    if name not in SHIPPED and path.suffix != ".toml":
        look_up(name, SHIPPED, "plan (or give a .toml file)")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingFileError(f"no plan at {path}; shipped are: {', '.join(SHIPPED)}") from None
    try:
        return Plan.model_validate(tomllib.loads(text)), text
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        slips = "; ".join(_slip(slip) for slip in error.errors())
        raise PlanError(f"{path}: {slips}") from None


def held_out_name(features: str, share: float | None) -> str:
    """Name features of which a part of the training data takes the place of the test data.

    >>> held_out_name("mine.safetensors", 0.2)
    'mine.safetensors (0.2 held out)'
    """
    return features if share is None else f"{features} ({share:g} held out)"


def _run(
    data: str,
    scenario: ScenarioSpec,
    head: str,
    preset: Preset,
    lr: float | None,
    subset: int | str,
    seed: int,
) -> Run:
    """Make a run; the seed orders the tasks too, as in the paper, where there are several."""
    base, mask = split_name(head)
    order = 0 if scenario.kind == "iid" else seed
    size = None if isinstance(subset, str) else subset
    return Run(data, scenario, base, mask, preset, lr, order, seed, size)


def _slip(slip: Any) -> str:
    """Say where a plan is wrong, and how."""
    *parents, last = slip["loc"]
    if slip["type"] == "extra_forbidden":
        known = Experiment if parents else Plan
        return f"{_place(parents)}{_message(lambda: look_up(str(last), known.model_fields, 'key'))}"
    message = slip["msg"].removeprefix("Value error, ")
    got = "" if slip["type"] in ("value_error", "missing") else f", got {slip['input']!r}"
    return f"{_place(slip['loc'])}{message}{got}"


def _place(location: Any) -> str:
    """Write ("experiment", 1, "heads", 0) as "experiment[1].heads[0]: "."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{text.lstrip('.')}: " if text else ""


def _message(work: Callable[[], T]) -> str:
    try:
        work()
    except LastLayerError as error:
        return str(error)
    return "unexpected"
