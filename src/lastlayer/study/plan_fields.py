"""What the blocks of a plan may hold: each kind of value, how it is read, and what is refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from lastlayer.heads import split_name
from lastlayer.names import look_up
from lastlayer.study.scenario_spec import ScenarioSpec


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


Many = BeforeValidator(_many)
Seeds = Annotated[tuple[int, ...], PlainValidator(_seeds)]
Scenarios = Annotated[
    tuple[Annotated[ScenarioSpec, PlainValidator(_scenario)], ...],
    Many,
    Field(min_length=1),
]
Heads = Annotated[tuple[Annotated[str, PlainValidator(_head)], ...], Field(min_length=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Size = Annotated[int, Field(ge=1)] | Literal["all"]


class Strict(BaseModel):
    """A block in which nothing may stand that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
