"""The parts of the page, in its order; each is left out where a study does not contain it."""

from collections.abc import Callable, Sequence

from lastlayer.report.section import Section, Tables
from lastlayer.report.sections.causes import causes
from lastlayer.report.sections.claims import claims
from lastlayer.report.sections.first_task import first_task
from lastlayer.report.sections.interference import interference
from lastlayer.report.sections.masks import masks
from lastlayer.report.sections.norms import norms
from lastlayer.report.sections.preliminary import preliminary
from lastlayer.report.sections.presets import presets
from lastlayer.report.sections.published import published
from lastlayer.report.sections.replay import replay
from lastlayer.report.sections.runs import runs
from lastlayer.report.sections.similarity import similarity
from lastlayer.report.sections.streams import streams
from lastlayer.report.sections.subsets import subsets
from lastlayer.report.sections.summary import summary
from lastlayer.report.sections.weights import weights

SECTIONS: Sequence[Callable[[Tables], Section | None]] = (
    summary,
    streams,
    masks,
    similarity,
    subsets,
    preliminary,
    published,
    norms,
    weights,
    interference,
    first_task,
    causes,
    replay,
    claims,
    presets,
    runs,
)


def make_sections(tables: Tables) -> list[Section]:
    """Make every part that the tables have something for."""
    made = (make(tables) for make in SECTIONS)
    return [section for section in made if section is not None]
