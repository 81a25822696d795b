"""A study of somebody's own data: what to use, in its own names, and nothing of the paper."""

import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from lastlayer.report import write
from lastlayer.report.charts import WORST, coinciding
from lastlayer.report.contents import make_sections, make_tables
from lastlayer.report.data_names import data_name, in_words, title_of
from lastlayer.report.topics.standings import standings
from lastlayer.report.topics.summary import answer, how_to_choose
from lastlayer.results import load_study as load
from made_up import HUNDRED, PAPER, Stream, iid, write_study
from read_page import Page

MINE = "data/clips.safetensors"
SOME = ("linear", "weight_norm", "cosine+single", "knn", "mean", "slda", "ridge")
PAPERS = ("Fig.", "the paper", "published", "Published", "tables 1", "tables 2")


def own(**more: object) -> list[Stream]:
    """Return the streams of somebody who has read nothing."""
    some = {"features": MINE, "heads": SOME, "preset": "exact", "n_classes": 6, **more}
    return [
        Stream("incremental:3", n_tasks=3, **some),
        Stream("nested:y/domain", label="domain", n_tasks=3, **some),
        Stream("lifelong:month", n_tasks=3, **some),
        iid(MINE, "class", 6, heads=("linear", "slda"), preset="exact", subsets=(100, None)),
    ]


@pytest.fixture(name="page", scope="module")
def _page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    from lastlayer.report import drawing  # noqa: PLC0415
    from lastlayer.report.drawing import Drawn  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("clips.toml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "draw", lambda specs: Drawn())
        patch.setattr(drawing, "javascript", lambda: ("", ""))
        return Page(write(write_study(folder, own())))


def words(page: Page) -> str:
    """Return all that is read on a page but the plan, which is the user's own."""
    return page.words.rpartition("The plan\n")[0]


def test_nothing_on_the_page_is_the_papers(page: Page) -> None:
    credit, _, _ = words(page).partition("Heads and measures follow")
    assert not [word for word in PAPERS if word in credit]
    assert not {"similarity", "published", "claims"} & {*page.sections}


def test_the_papers_own_study_keeps_its_numbers(folder: Path) -> None:
    said = words(Page(folder / "report.html"))
    assert all(f"({fig})" in said for fig in ("Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5a"))
    assert "Of the paper's conclusions and its recommendation" in said


def test_the_papers_conclusions_are_put_to_its_data_alone(tmp_path: Path) -> None:
    """Own data beside the paper's change no verdict and no number behind it."""
    alone = make_tables(load(write_study(tmp_path / "alone", [PAPER[0]])))
    mixed = make_tables(load(write_study(tmp_path / "mixed", [PAPER[0], *own()])))
    assert mixed["claims"].equals(alone["claims"])
    assert mixed["claim_parts"].equals(alone["claim_parts"])


def test_own_data_come_first_and_the_papers_questions_in_a_part_of_their_own(
    tmp_path: Path,
) -> None:
    sections = make_sections(make_tables(load(write_study(tmp_path, [PAPER[0], *own()]))))
    accuracy = next(section for section in sections if section.name == "accuracy")
    titles = [figure.title for panel in accuracy.panels for figure in panel.figures]
    assert [title.startswith("clips") for title in titles] == [True, True, True, False]
    parts = {section.name: section.part for section in sections}
    assert list(dict.fromkeys(parts.values())) == ["", "The paper's questions", "This study"]
    asked = {name for name, part in parts.items() if part == "The paper's questions"}
    assert asked == {"claims", "masks"}
    assert parts["ranking"] == parts["preliminary"] == ""


def test_streams_and_files_have_readable_names(page: Page) -> None:
    said = words(page)
    for raw in ("safetensors", "nested:", "incremental:", "lifelong:", "data/clips"):
        assert raw not in said, raw
    for name in ("new classes in 3 tasks", "domain, one y of each at a time", "month by month"):
        assert f"clips, {name}" in said


def test_the_title_names_the_data_and_not_the_plan(page: Page) -> None:
    assert "Which output layer for clips\n" in page.words
    assert "toml" not in words(page)


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("incremental:1", "new classes in 1 task"),
        ("incremental:4,3,3", "new classes in 3 tasks"),
        ("lifelong:month/species", "species, month by month"),
        ("mixed:day", "classes, day by day, new ones among them"),
        ("weekly:7", "weekly:7"),
        ("incremental", "incremental"),
    ],
)
def test_a_scenario_in_words(scenario: str, said: str) -> None:
    assert in_words(scenario) == said
    assert title_of("mine.safetensors", scenario) == f"mine, {said}"


def test_data_of_one_name_in_two_folders_stay_apart(tmp_path: Path, undrawn: None) -> None:
    streams = [
        Stream("incremental:3", f"{place}/x.safetensors", n_tasks=3, heads=("mean", "slda"))
        for place in ("a", "b")
    ]
    page = Page(write(write_study(tmp_path, streams)))
    assert {f"accuracy-{place}-x-safetensors-new-classes-in-3-tasks" for place in "ab"} <= {
        *page.tables
    }


@pytest.mark.parametrize("name", ["", ".safetensors", "a/b", "C:\\x\\clips.safetensors"])
def test_any_text_can_be_the_name_of_data(name: str) -> None:
    assert data_name(name) == ("clips" if "clips" in name else name)


# What to use.


def table(*rows: tuple[str, float, float]) -> pl.DataFrame:
    """Return a sheet "accuracy" of one stream: head, mean and deviation over 8 orders."""
    return pl.DataFrame(
        [
            {
                "features": MINE, "scenario": "incremental:3", "label": "class", "n_classes": 10,
                "n_tasks": 3, "kind": "incremental", "head": head.partition("+")[0],
                "mask": head.partition("+")[2] or "none", "name": head, "mean": mean,
                "deviation": deviation, "runs": 8,
            }
            for head, mean, deviation in rows
        ]
    )  # fmt: skip


def sets(test_samples: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "features": [MINE],
            "train_samples": [5000],
            "test_samples": [test_samples],
            "in_features": [64],
        }
    )


def test_the_page_opens_with_the_best_head_and_says_that_test_rows_chose_it(page: Page) -> None:
    opening, _, _ = page.words.partition("Summary")
    assert "On the test rows " in opening
    assert "These rows made the choice, which flatters it a little" in " ".join(opening.split())
    assert "lastlayer advise" in opening
    tables = {"accuracy": table(("slda", 80, 0.1), ("linear", 40, 2)), "data": sets(5000)}
    best = "On the test rows slda is best: it ends at 80.0 % (clips, new classes in 3 tasks)."
    assert answer(tables) == best
    assert how_to_choose(tables) == f"lastlayer advise {MINE} --scenario incremental:3"


def test_the_command_that_chooses_can_be_typed_as_it_stands() -> None:
    features, scenario = "my clips/a.safetensors (0.2 held out)", "lifelong:day of week/class"
    one = table(("slda", 80, 0)).with_columns(features=pl.lit(features), scenario=pl.lit(scenario))
    typed = shlex.split(how_to_choose({"accuracy": one}))
    assert typed == ["lastlayer", "advise", "my clips/a.safetensors", "--scenario", scenario]
    both = pl.concat([one, one.with_columns(scenario=pl.lit("iid"))])
    assert how_to_choose({"accuracy": both}) == "lastlayer advise"


def test_a_tie_is_named_as_far_as_the_test_samples_can_tell() -> None:
    """80 and 79 %: the interval of the difference is 1.96 √(1600 + 1659)/n to each side."""
    accuracy = table(("slda", 80, 0), ("mean", 79, 0), ("linear", 40, 0))
    for samples, level in ((5000, True), (50_000, False)):
        found = standings(accuracy, sets(samples))
        assert [each.level for each in found] == [True, level, False]
        reach = 1.96 * np.sqrt(100**2 * 0.8 * 0.2 / samples)
        assert found[0].reach == pytest.approx(reach)
        said = answer({"accuracy": accuracy, "data": sets(samples)})
        assert ("mean is level with it" in said) == level


def test_orders_that_differ_much_make_a_tie() -> None:
    found = standings(table(("slda", 80, 6), ("mean", 77, 6)), sets(10**9))
    assert found[1].level
    assert found[0].reach == pytest.approx(1.96 * 6 / np.sqrt(7), rel=1e-3)


def test_an_answer_over_streams_that_disagree() -> None:
    one = table(("slda", 80, 0), ("mean", 60, 0))
    other = table(("slda", 70, 0), ("mean", 75, 0)).with_columns(scenario=pl.lit("lifelong:day"))
    said = answer({"accuracy": pl.concat([one, other]), "data": sets(10_000)})
    assert said == (
        "On the test rows slda is best on average: it ends at 80.0 % (clips, new classes in 3 "
        "tasks) and 70.0 % (clips, day by day); it is 5.0 points behind mean on clips, day by day."
    )


@pytest.mark.parametrize("others", [(), (("mean", 60, 0),)])
def test_a_better_head_that_was_not_run_everywhere_is_named(
    others: tuple[tuple[str, float, float], ...],
) -> None:
    one = table(("slda", 80, 0), ("qda", 90, 0))
    other = table(("slda", 70, 0), *others).with_columns(scenario=pl.lit("lifelong:day"))
    said = answer({"accuracy": pl.concat([one, other]), "data": sets(10_000)})
    best = "On the test rows slda is best on average of the heads that were run on every stream: "
    assert said.startswith(best)
    assert said.endswith("; it is 10.0 points behind qda on clips, new classes in 3 tasks.")


def test_no_head_on_every_stream() -> None:
    other = table(("mean", 75, 0)).with_columns(scenario=pl.lit("lifelong:day"))
    said = answer({"accuracy": pl.concat([table(("slda", 80, 0)), other])})
    assert said == (
        "No head was run on every stream. Best on the test rows: slda for clips, new classes in 3 "
        "tasks; mean for clips, day by day."
    )


def test_a_study_of_one_head_says_so(tmp_path: Path, undrawn: None) -> None:
    page = Page(write(write_study(tmp_path, own(heads=("slda",))[:1])))
    assert "slda is the only head of this study: it ends at" in page.words
    assert "ranking" not in page.sections
    assert "linear layer" not in page.words


def test_a_study_without_streams_gives_no_advice() -> None:
    assert answer({}) == ""
    assert answer({"accuracy": table(("slda", 80, 0)).clear()}) == ""


def test_cost_stands_beside_accuracy(page: Page) -> None:
    rows = page.rows("ranking-clips-new-classes-in-3-tasks")
    assert [row["head"] for row in rows[:1]] == [page.rows("summary")[0]["head"]]
    kept = {row["head"]: (row["keeps"], row["data rows"]) for row in rows}
    assert kept["knn"][1] == "kept"
    assert kept["slda"][1] == "none kept"
    assert all(size.endswith(("B", "kB")) for size, _ in kept.values())
    labels = {
        row["label"]
        for row in page.specs["ranking-clips-new-classes-in-3-tasks"]["datasets"]["rows"]
    }
    assert labels == {f"{head}, {size}" for head, (size, _) in kept.items()}


def test_everything_at_once_is_the_converged_reference_where_there_is_one(tmp_path: Path) -> None:
    tables = make_tables(load(write_study(tmp_path, own())))
    assert tables["references"].is_empty()  # as in studies of earlier versions: the best head
    rows = {"features": [MINE], "label": ["class"], "mean": [88.25]}
    first = make_sections({**tables, "references": pl.DataFrame(rows)})[0]
    assert "all data at once (softmax regression, 88.25 %)" in first.words[0]
    bars = [row for row in first.panels[0].figures[0].rows if row["role"] == "all data at once"]
    assert {(row["name"], row["mean"]) for row in bars} >= {("softmax regression", 88.25)}
    assert "as a bar a softmax regression retrained on all data at once" in first.panels[0].caption
    other = pl.DataFrame({**rows, "label": ["domain"]})  # of the other label the best head is known
    first = make_sections({**tables, "references": other})[0]
    assert "as a bar what is reached with all data at once" in first.panels[0].caption


# Charts.


def figures(folder: Path) -> dict[str, dict[str, object]]:
    sections = make_sections(make_tables(load(folder)))
    return {f.name: f.spec for s in sections for panel in s.panels for f in panel.figures}


def test_of_many_classes_the_worst_are_shown_by_name(tmp_path: Path) -> None:
    found = figures(write_study(tmp_path, [HUNDRED]))
    some = [n for n in found if n.startswith(("norms-", "interference-", "weight-change-"))]
    assert len(some) == 3 + 6 + 1
    for name in some:
        rows = found[name]["datasets"]["rows"]
        assert len({row["class"] for row in rows}) == WORST, name
        assert '"class 1"' in str(found[name]) or "labelExpr" in str(found[name]), name
    norms = found["norms-norm-cifar100-resnet20-cifar100"]
    table = make_tables(load(tmp_path))["norms"]
    middle = table["norm"].median()
    far = table.sort((pl.col("norm") - middle).abs(), descending=True)["class"][:WORST]
    assert {row["class"] for row in norms["datasets"]["rows"]} == set(far)


def test_curves_that_coincide_are_drawn_as_one_with_both_names(tmp_path: Path) -> None:
    folder = write_study(tmp_path, own()[:1])
    tables = make_tables(load(folder))
    twin = (
        tables["curves"]
        .filter(name="slda")
        .with_columns(head=pl.lit("mean"), name=pl.lit("mean"), mean=pl.col("mean") + 0.01)
    )
    curves = pl.concat([tables["curves"].filter(pl.col("name") != "mean"), twin])
    sections = make_sections({**tables, "curves": curves})
    spec = next(f.spec for s in sections for p in s.panels for f in p.figures
                if f.name.startswith("accuracy-"))  # fmt: skip
    rows = spec["datasets"]["rows"]
    assert {row["same"] for row in rows} == {"", "mean = slda"}
    filters = [step["filter"] for step in spec["transform"] if "filter" in step]
    assert 'datum.name != "slda" || (indexof(hidden, "mean") >= 0)' in filters
    assert spec["title"]["text"] == ["one line: mean = slda"]
    assert not any("text" in layer.get("encoding", {}) for layer in spec["layer"])


def test_curves_apart_are_not_put_together() -> None:
    rows = [{"name": n, "x": x, "mean": m} for n, x, m in
            (("a", 0, 50), ("a", 1, 60), ("b", 0, 50), ("b", 1, 61), ("c", 0, 50))]  # fmt: skip
    assert coinciding(rows, "x", ["a", "b", "c"]) == []


def test_what_the_paper_reads_from_its_figure_stands_beside_our_numbers(folder: Path) -> None:
    said = Page(folder / "report.html").words
    table = make_tables(load(folder))["interference"]
    mine = table.filter(pl.col("class") == 4, scenario="cifar10", name="linear")
    risk = dict(mine.select("vector", "risk").rows())
    assert f"its risks from them are {risk[1]:.2f} and {risk[3]:.2f}" in said
