"""A topic is one file; what is not there is left out, and a head nobody has seen is on the page."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.errors import FileFormatError
from lastlayer.report import write
from lastlayer.report.contents import all_sheets, all_topics, make_sections, make_tables
from lastlayer.report.looks import look_of
from lastlayer.report.section import Section
from lastlayer.results import load_study as load
from made_up import ALL, LAYERS, Stream, iid, write_study
from new_heads import with_cards
from read_page import Page

ROOT = Path(__file__).parents[2]
TYPES = {pl.String: "text", pl.Int64: "integer", pl.Float64: "number", pl.Boolean: "truth"}


@pytest.fixture(name="tables", scope="module")
def _tables(folder: Path) -> dict[str, pl.DataFrame]:
    return make_tables(load(folder))


@pytest.fixture(name="alone")
def _alone(folder: Path, tmp_path: Path, undrawn: None) -> Path:
    (tmp_path / "tables").mkdir()
    for path in (folder / "tables").glob("*.csv"):
        shutil.copy(path, tmp_path / "tables")
    return tmp_path


@pytest.fixture(name="whole", scope="module")
def _whole(tables: dict[str, pl.DataFrame]) -> dict[str, Section]:
    return {section.name: section for section in make_sections(tables)}


def test_every_chart_is_what_vega_lite_knows(whole: dict[str, Section]) -> None:
    figures = [f for section in whole.values() for p in section.panels for f in p.figures]
    assert len(figures) > 40
    for figure in figures:
        figure.chart.to_dict(validate=True)


FIRST = "accuracy", "repairs", "by_mask"  # what every study has, what an option adds, an average


@pytest.mark.parametrize(
    "sheet",
    [pytest.param(s, marks=[] if s.name in FIRST else [pytest.mark.slow]) for s in all_sheets()],
    ids=lambda sheet: sheet.name,
)
def test_a_table_that_is_not_there_drops_its_topic_and_no_other(
    tables: dict[str, pl.DataFrame], whole: dict[str, Section], sheet: object
) -> None:
    """Figures and tables of all other topics stay as they are."""
    (name,) = (s.name for s in all_sheets() if s is sheet)
    without = {n: table for n, table in tables.items() if n != name}
    left = {section.name: section for section in make_sections(without)}
    gone = {
        section.name
        for _, topic in all_topics()
        if sheet in topic.needs and (section := topic.of(tables)) is not None
    }
    assert whole.keys() - left.keys() == gone
    touched = {
        section.name
        for _, topic in all_topics()
        if (sheet in topic.also or name in topic.reads)
        and (section := topic.of(tables)) is not None
    }
    for each in left.keys() - touched:
        assert [t.rows for t in left[each].tables] == [t.rows for t in whole[each].tables]
        assert [f.spec for p in left[each].panels for f in p.figures] == [
            f.spec for p in whole[each].panels for f in p.figures
        ]


def test_repairs_that_are_not_there_are_not_on_the_page(alone: Path) -> None:
    (alone / "tables" / "repairs.csv").unlink()
    (alone / "tables" / "about.csv").unlink()
    page = Page(write(alone))
    assert "repairs" not in page.sections
    assert "runs" not in page.sections
    assert "accuracy" in page.sections
    assert "nothing was planned" not in page.words


def test_a_table_of_another_version_is_left_out_in_words(alone: Path) -> None:
    path = alone / "tables" / "repairs.csv"
    path.write_text(path.read_text().replace("what,", "reason,", 1))
    page = Page(write(alone))
    assert "repairs" not in page.sections
    assert "tables/repairs.csv has other columns than this version of lastlayer knows" in page.words


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("repairs", lambda text: text[: len(text) // 2].rpartition(b",")[0] + b',"x\n'),
        ("repairs", lambda text: text.replace(b"repair_either", b"the_weather")),
        ("accuracy", lambda text: re.sub(rb"\n(.*?),5,", rb"\n\1,five,", text)),
        ("curves", lambda text: re.sub(rb",(\d+\.\d+),", rb",inf,", text)),
        ("iid", lambda text: text + b"\xff\xfe\n"),
        ("claims", lambda text: text.replace(b"not testable with this study", b"perhaps")),
        ("about", lambda text: re.sub(rb"runs_done,\d+", b"runs_done,many", text)),
        ("about", lambda text: re.sub(rb"runs_failed,\d+", b"runs_failed,many", text)),
    ],
)
def test_a_damaged_table_is_named(alone: Path, name: str, damage: object) -> None:
    path = alone / "tables" / f"{name}.csv"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(FileFormatError, match=rf"{name}\.csv"):
        write(alone)


def test_every_column_is_in_the_docs() -> None:
    text = (ROOT / "results" / "paper" / "README.md").read_text(encoding="utf-8")
    for sheet in all_sheets():
        kinds = {kind: [n for n, k in sheet.columns.items() if k == kind] for kind in TYPES}
        cells = "; ".join(f"{TYPES[k]}: {', '.join(names)}" for k, names in kinds.items() if names)
        assert f"| `{sheet.name}.csv` | {cells} |" in text


def test_the_committed_tables_are_written_as_they_lie() -> None:
    for folder in ("paper", "replay"):
        for sheet in all_sheets():
            path = ROOT / "results" / folder / "tables" / f"{sheet.name}.csv"
            if path.is_file():
                table = sheet.read(path.read_bytes(), path)
                assert table is not None, path
                assert sheet.write(table) == path.read_bytes(), path


NEW = ("unseen_0", "unseen_1", "unseen_1+single")


@pytest.fixture(name="more", scope="module")
def _more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    heads = (*ALL, *NEW)
    streams = [
        Stream(heads=heads, orders=(0, 1)),
        Stream("cub200", "cub200/resnet18", heads=ALL, orders=(0, 1)),
        iid("mine", "class", 10, heads=heads, orders=(0, 1), subsets=(100, None)),
    ]
    return write_study(tmp_path_factory.mktemp("more"), streams)


def test_heads_that_the_paper_does_not_know(more: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_cards(monkeypatch, "unseen_0")
    layer = replace(HEADS["linear"], name="unseen_1", colour=None, marker=None)
    monkeypatch.setitem(HEADS, "unseen_1", layer)
    tables = make_tables(load(more))
    sections = {section.name: section for section in make_sections(tables)}
    figures = {f.name: f for s in sections.values() for p in s.panels for f in p.figures}
    drawn = {row["name"] for row in figures["accuracy-cifar10-resnet20-cifar100"].rows}
    assert drawn == {*ALL, *NEW}
    chart = figures["accuracy-cifar10-resnet20-cifar100"]
    scale = chart.spec["layer"][1]["encoding"]["color"]["scale"]
    colours = dict(zip(scale["domain"], scale["range"], strict=True))
    assert colours["unseen_0"] == look_of("unseen_0").colour
    # What reproduces the paper is made of its heads alone, and of all streams that have them.
    assert set(tables["by_mask"]["layers"]) == {", ".join(sorted(LAYERS))}
    layers = {row["head"] for row in figures["layers-and-masks-incremental"].rows}
    assert layers == set(LAYERS)
    five = {row["name"] for row in figures["similarity-incremental"].rows}
    assert five == {"linear", "weight_norm", "cosine+single", "knn", "mean", "median", "slda"}
    paper = tables["by_kind"].filter(name="slda").row(0, named=True)
    assert paper["over"] == "cifar10, resnet20-cifar100; cub200, resnet18"
    beyond = {row["name"] for row in figures["beyond-the-paper-incremental"].rows}
    assert beyond >= set(NEW)
    told = " ".join(tables["claims"]["numbers"].drop_nulls())
    assert "unseen" not in told
    # The legend shows at first what somebody added.
    (panel,) = sections["accuracy"].panels
    assert set(panel.heads) - set(panel.hidden) >= set(NEW)


def test_heads_without_a_card_are_drawn(more: Path, undrawn: None) -> None:
    assert not {"unseen_0", "unseen_1"} & HEADS.keys()
    page = Page(write(more))
    spec = page.specs["accuracy-cifar10-resnet20-cifar100"]
    scale = spec["layer"][1]["encoding"]["color"]["scale"]
    assert scale["domain"][-2:] == ["unseen_0", "unseen_1"]
    assert scale["range"][-2:] == [look_of(name).colour for name in ("unseen_0", "unseen_1")]
    assert {row["head"] for row in page.rows("accuracy-cifar10-resnet20-cifar100")} >= set(NEW)


def test_the_page_says_which_heads_answered_seldom(tmp_path: Path) -> None:
    """A head without an answer after every task has a curve of fewer points."""
    study = write_study(tmp_path, [Stream("incremental:3", n_tasks=3, heads=("mean", "slda"))])
    tables = make_tables(load(study))

    def section(curves: pl.DataFrame) -> Section:
        return next(s for s in make_sections({**tables, "curves": curves}) if s.name == "accuracy")

    def tasks(section: Section, head: str) -> set[int]:
        rows = section.panels[0].figures[0].rows
        return {row["learned"] // 1 for row in rows if row["name"] == head}

    assert len(section(tables["curves"]).words) == 1
    second = (pl.col("name") == "slda") & (pl.col("task") == 1)
    known = pl.when(second).then(None).otherwise("mean").alias("mean")
    found = section(tables["curves"].with_columns(known))
    assert "slow to answer, so asked 2 times in 3 tasks: slda" in found.words[1]
    assert tasks(found, "mean") - tasks(found, "slda") == {1}
