"""Plans: what they mean, and that every slip in one is named by its place."""

import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from lastlayer.catalogue.head_cards import PAPER_HEADS, all_heads, card_of
from lastlayer.errors import FileFormatError, MissingFileError, PlanError, UnknownNameError
from lastlayer.replay.training import AUTHORS, ReplayRules
from lastlayer.study.plan_fields import MOST_SEEDS, read_seeds
from lastlayer.study.plan_file import SHIPPED, read_plan

GOOD = """
preset = "paper"
seeds = "0-1"
[[experiment]]
features = ["cifar10", "mine.safetensors"]
scenario = { kind = "incremental", tasks = 5 }
heads = ["linear", "cosine+single", "slda"]
lr = [0.1, 0.01]
[[experiment]]
features = "cifar10"
scenario = "iid"
heads = "mean"
seeds = [3]
preset = "exact"
subset = [100, "all"]
held_out = 0.25
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_every_combination_is_a_run(tmp_path: Path) -> None:
    plan, text = read_plan(write(tmp_path, GOOD))
    assert text == GOOD
    first, second = (list(experiment.runs(plan)) for experiment in plan.experiment)
    assert len(first) == 2 * (2 + 2 + 1) * 2
    assert len(set(first)) == len(first)
    assert {run.features for run in first} == {"cifar10/resnet20-cifar100", "mine.safetensors"}
    assert {(run.head_name, run.lr) for run in first} == {
        ("linear", 0.1), ("linear", 0.01), ("cosine+single", 0.1), ("cosine+single", 0.01),
        ("slda", None),
    }  # fmt: skip
    assert {(run.order, run.seed) for run in first} == {(0, 0), (1, 1)}
    assert {str(run.scenario) for run in first} == {"incremental:5"}
    assert {(run.subset, run.seed, run.order, run.preset) for run in second} == {
        (100, 3, 0, "exact"),
        (None, 3, 0, "exact"),
    }
    assert second[0].features == "cifar10/resnet20-cifar100 (0.25 held out)"


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [('"0-7"', tuple(range(8))), ("3", (3,)), ("[2, 0]", (2, 0)), ('"0-1,5"', (0, 1, 5))],
)
def test_seeds_are_read_as_they_are_written(
    tmp_path: Path, seeds: str, expected: tuple[int, ...]
) -> None:
    plan, _ = read_plan(write(tmp_path, GOOD.replace('seeds = "0-1"', f"seeds = {seeds}")))
    assert plan.seeds == expected


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("features = [", "feature = [", r"experiment\[0\]: unknown key 'feature'.* 'features'"),
        ("seeds =", "seed =", "unknown key 'seed'; did you mean 'seeds'"),
        (
            'preset = "paper"',
            'preset = "paper"\nheld_out = 0.2',
            r"'held_out' belongs in \[\[experiment\]\], not here",
        ),
        ('"linear"', '"lineer"', r"experiment\[0\]\.heads\[0\]: unknown head 'lineer'.*'linear'"),
        ("cosine+single", "cosine+singel", r"heads\[1\]: unknown mask 'singel'.*'single'"),
        ('"iid"', '"idd"', r"experiment\[1\]\.scenario\[0\]: unknown scenario 'idd'"),
        ("tasks = 5", "task = 5", r"scenario\[0\]: unknown key of a scenario 'task'.*'tasks'"),
        (", tasks = 5", "", r"scenario\[0\]: scenario 'incremental' needs 'tasks'"),
        ("tasks = 5", 'tasks = "5"', r"scenario\[0\]: tasks must be a number.*'5'"),
        (
            "tasks = 5",
            "tasks = [5]",
            r"scenario\[0\]: tasks must list the classes of at least two tasks",
        ),
        ('"incremental"', '["iid"]', r"scenario\[0\]: 'kind' must be text, got \['iid'\]"),
        ('"0-1"', '"0-7-9"', 'seeds: seeds must be "0-7"'),
        (
            "[3]",
            "[4294967296]",
            r"experiment\[1\]\.seeds: there must be at least one seed, from 0 to",
        ),
        ("lr = [0.1", "lr = [-0.1", r"experiment\[0\]\.lr\[0\]: .*greater than 0, got -0.1"),
        ('"paper"', '"papper"', "preset: .*'exact' or 'paper', got 'papper'"),
        ('preset = "paper"', "", 'preset: missing: write preset = "paper", or "exact"'),
        ('scenario = "iid"', "", r"experiment\[1\]\.scenario: missing: write scenario ="),
        ('"0-1"', '"a-b"', 'seeds: seeds must be "0-7"'),
        ("[3]", "[]", r"experiment\[1\]\.seeds: there must be at least one seed"),
        ("held_out = 0.25", "held_out = 1.5", r"experiment\[1\]\.held_out: .*less than 1, got 1.5"),
        (
            '[100, "all"]',
            "[0]",
            r"subset\[0\]: must be a number of samples from 1 to .*, or \"all\", got 0",
        ),
        ('heads = "mean"', "heads = []", r"experiment\[1\]\.heads: must have at least one"),
        ("[[experiment]]", "[experiment", "is not valid TOML"),
    ],
)
def test_a_slip_is_named_by_its_place(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in GOOD
    with pytest.raises(PlanError, match=message):
        read_plan(write(tmp_path, GOOD.replace(right, wrong)))


def test_single_brackets_are_understood(tmp_path: Path) -> None:
    text = 'preset = "paper"\n[experiment]\nfeatures = "cifar10"\nscenario = "iid"\n'
    with pytest.raises(PlanError, match=r"write \[\[experiment\]\], in double brackets"):
        read_plan(write(tmp_path, text))


def test_a_plan_that_is_not_there_is_said_so() -> None:
    with pytest.raises(MissingFileError, match="the shipped ones are: demo"):
        read_plan("nowhere.toml")
    with pytest.raises(UnknownNameError, match="did you mean 'quick'"):
        read_plan("quik")


def test_the_quick_plan_has_every_head_on_new_classes_and_on_new_surroundings() -> None:
    plan, _ = read_plan("quick")
    runs = [run for experiment in plan.experiment for run in experiment.runs(plan)]
    for scenario in ("cifar10", "cifar100_lifelong"):
        found = [run for run in runs if str(run.scenario) == scenario]
        assert {run.head_name for run in found} == set(all_heads(rows=50_000))
        assert {run.order for run in found} == {0, 1, 2}


def test_the_paper_plan_is_the_paper() -> None:
    plan, _ = read_plan("paper")
    runs = {run for experiment in plan.experiment for run in experiment.runs(plan)}
    assert {run.seed for run in runs} == set(range(8))
    continual = {str(run.scenario) for run in runs if run.scenario.kind != "iid"}
    assert continual == {
        "cifar10", "cifar100", "cifar100_lifelong", "cifar100_mix",
        "core50", "core10_lifelong", "core10_mix", "cub200",
    }  # fmt: skip
    subsets = [run for run in runs if run.subset == 100 and run.seed == 0]
    assert len({run.head_name for run in subsets}) == 14
    assert len({(run.features, run.scenario) for run in subsets}) == 5
    rates = {run.lr for run in runs if run.features == "core50/vgg16" and run.head == "cosine"}
    assert rates == {0.1, 0.01, 0.001}


REPLAY = """
preset = "paper"
seeds = "0-2"
[[replay]]
dataset = "cifar10"
scenario = "cifar10"
heads = ["linear", "weight_norm+group"]
balance = [0.01, 1]
per_class = 20
epochs = 2
optimizer = "sgd"
lr = 0.1
"""


def test_every_combination_of_a_replay_block_is_a_network(tmp_path: Path) -> None:
    plan, _ = read_plan(write(tmp_path, REPLAY))
    runs = list(plan.replay[0].runs(plan.seeds))
    assert len(set(runs)) == len(runs) == 2 * 2 * 3
    assert {(run.head_name, run.balance, run.seed) for run in runs} == set(
        product(("linear", "weight_norm+group"), (0.01, 1.0), (0, 1, 2))
    )
    assert {run.rules for run in runs} == {ReplayRules(2, 8, 20, "sgd", 0.1)}
    assert len({run.digest("images") for run in runs}) == len(runs)
    assert runs[0].digest("images") != runs[0].digest("other images")


def test_quick_shows_heads_beyond_the_paper_beside_its_own() -> None:
    """The page compares heads of one preset, so they must have the same."""
    plan, _ = read_plan("quick")
    runs = [run for block in plan.experiment for run in block.runs(plan)]
    beyond = {(r.features, r.scenario, r.preset) for r in runs if not card_of(r.head).in_paper}
    assert len(beyond) == 2
    assert beyond <= {(r.features, r.scenario, r.preset) for r in runs if r.head == "linear"}
    assert {preset for *_, preset in beyond} == {"paper"}


def test_the_replay_plan_is_as_the_authors_configured_it() -> None:
    plan, _ = read_plan("replay")
    runs = list(plan.replay[0].runs(plan.seeds))
    assert len(runs) == 48
    assert {run.rules for run in runs} == {ReplayRules(epochs=50)}
    assert {run.options for run in runs} == {replace(AUTHORS, precision="bfloat16")}
    assert {run.balance for run in runs} == {0.01, 0.1, 0.5, 1.0}


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("balance =", "balence =", r"replay\[0\]: unknown key 'balence'.* 'balance'"),
        (
            '"linear"',
            '"slda"',
            r"replay\[0\]\.heads\[0\]: unknown layer trained by gradient 'slda'",
        ),
        ('dataset = "cifar10"', 'dataset = "core50"', r"replay\[0\]\.dataset: unknown data set"),
        ("0.01", "-0.01", r"replay\[0\]\.balance\[0\]: .*greater than or equal to 0, got -0.01"),
        ('"sgd"', '"sdg"', r"replay\[0\]\.optimizer: unknown optimizer 'sdg'.* 'sgd'"),
        ("epochs = 2", "epochs = 0", r"replay\[0\]\.epochs: .*got 0"),
        ("per_class = 20", "batch_size = 1", r"replay\[0\]\.batch_size: .*got 1"),
        ("[[replay]]", "[[replays]]", "unknown key 'replays'; did you mean 'replay'"),
        (
            REPLAY[REPLAY.index("[[") :],
            "",
            r"must have at least one \[\[experiment\]\] or \[\[replay",
        ),
    ],
)
def test_a_slip_in_a_replay_block_is_named_by_its_place(
    tmp_path: Path, right: str, wrong: str, message: str
) -> None:
    assert right in REPLAY
    with pytest.raises(PlanError, match=message):
        read_plan(write(tmp_path, REPLAY.replace(right, wrong)))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_plans_begin_with_what_they_are(name: str) -> None:
    read_plan(name)
    assert SHIPPED[name].read_text(encoding="utf-8").startswith("# ")


def test_heads_can_be_named_together(tmp_path: Path) -> None:
    plan, _ = read_plan(write(tmp_path, GOOD.replace('heads = "mean"', 'heads = "paper"')))
    assert plan.experiment[1].heads == PAPER_HEADS
    plan, _ = read_plan(write(tmp_path, GOOD.replace('heads = "mean"', 'heads = "all"')))
    assert plan.experiment[1].heads == all_heads()
    plan, _ = read_plan(
        write(tmp_path, GOOD.replace('heads = "mean"', 'heads = ["slda", "paper"]'))
    )
    assert plan.experiment[1].heads == ("slda", *(h for h in PAPER_HEADS if h != "slda"))
    plan, _ = read_plan(write(tmp_path, GOOD.replace('heads = "mean"\n', "")))
    assert plan.experiment[1].heads == PAPER_HEADS


@pytest.mark.parametrize("name", ["paper", "quick"])
def test_shipped_plans_name_their_heads(name: str) -> None:
    for block in SHIPPED[name].read_text(encoding="utf-8").split("[[experiment]]")[1:]:
        assert "\nheads = " in block


HUGE = 10**26


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('[100, "all"]', HUGE, r"experiment\[1\]\.subset\[0\]: .*from 1 to 10,000,000"),
        ('[100, "all"]', 10**12, r"experiment\[1\]\.subset\[0\]: .*got 1000000000000"),
        ("tasks = 5", f"tasks = {HUGE}", r"scenario\[0\]: tasks must be a number"),
        ('"0-1"', HUGE, "seeds: "),
        ("[3]", f"[{HUGE}]", r"experiment\[1\]\.seeds: there must be at least one seed"),
        ("[3]", list(range(10_001)), r"experiment\[1\]\.seeds: there must be at most 10000 seeds"),
        ('"0-1"', '"0-6000,0-6000"', "seeds: there must be at most 10000 seeds"),
        ("lr = [0.1", f"lr = [1{'0' * 400}", r"experiment\[0\]\.lr\[0\]: "),
        ("lr = [0.1", f"lr = [1{'0' * 5000}", "is not valid TOML"),
        ("held_out = 0.25", f"held_out = {HUGE}", r"experiment\[1\]\.held_out: .*less than 1"),
        ("lr = [0.1", f"lr = {'[' * 5000}", "nested too deep"),
        ('"linear"', '"linear\\u0000"', r"heads\[0\]: unknown head"),
        ('"0-1"', '"0-9999"', "a plan must have at most 1,000,000 runs, got 1,260,002"),
    ],
)
def test_numbers_and_nesting_have_bounds(
    tmp_path: Path, right: str, wrong: object, message: str
) -> None:
    rates = ", ".join(str(1 + n / 100) for n in range(29))
    text = GOOD.replace("0.01]", f"0.01, {rates}]")
    with pytest.raises(PlanError, match=message) as raised:
        read_plan(write(tmp_path, text.replace(right, str(wrong))))
    assert "plan.toml" in str(raised.value)
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize("key", ["epochs = 2", "per_class = 20"])
def test_numbers_of_a_replay_block_have_bounds(tmp_path: Path, key: str) -> None:
    name = key.partition(" ")[0]
    with pytest.raises(PlanError, match=rf"replay\[0\]\.{name}: .*less than or equal to 1000000"):
        read_plan(write(tmp_path, REPLAY.replace(key, f"{name} = {HUGE}")))


def test_a_plan_is_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b'preset = "paper"\n# gr\xfc\xdfe\n')
    with pytest.raises(PlanError, match=r"plan.toml .*UTF-8 text, got the byte 0xfc in line 2"):
        read_plan(str(path))


def test_a_plan_is_a_small_ordinary_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("#" * 1_000_001)
    with pytest.raises(PlanError, match="at most 1,000,000 bytes"):
        read_plan(str(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileFormatError, match=r"plan.toml is a pipe or a device"):
        read_plan(str(path))
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(FileFormatError, match=r"plan.toml is a pipe or a device"):
        read_plan(str(path))


def test_many_slips_are_not_all_told(tmp_path: Path) -> None:
    heads = ", ".join(f'"head{n}"' for n in range(500))
    with pytest.raises(PlanError, match=r"experiment\[0\].heads\[19\]: .*; and 480 more$"):
        read_plan(write(tmp_path, GOOD.replace('"linear", "cosine+single", "slda"', heads)))


def test_more_seeds_than_a_plan_takes_are_counted_before_they_are_made() -> None:
    with pytest.raises(ValueError, match=f"got 0-{2 * MOST_SEEDS}"):
        read_seeds(f"0-{2 * MOST_SEEDS}")
