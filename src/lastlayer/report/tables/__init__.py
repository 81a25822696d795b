"""From the store to small tables, one for each figure: all that the page is made from."""

from collections.abc import Callable, Mapping

import polars as pl

from lastlayer.report.tables.accuracy import accuracy, by_kind, by_mask
from lastlayer.report.tables.causes import causes
from lastlayer.report.tables.claims import claims
from lastlayer.report.tables.curves import curves, first_task
from lastlayer.report.tables.iid import iid, subset_average
from lastlayer.report.tables.interference import maps, pairs
from lastlayer.report.tables.presets import presets
from lastlayer.report.tables.replay import projection_drift, replay
from lastlayer.report.tables.reproduction import reproduction
from lastlayer.report.tables.selection import backbones, rates
from lastlayer.report.tables.state import about, data, troubles
from lastlayer.report.tables.vectors import norms, weight_changes
from lastlayer.results import Study

FROM_STORE: Mapping[str, Callable[[Study], pl.DataFrame]] = {
    "about": about,
    "data": data,
    "troubles": troubles,
    "accuracy": accuracy,
    "curves": curves,
    "by_mask": by_mask,
    "by_kind": by_kind,
    "iid": iid,
    "subset_average": subset_average,
    "norms": norms,
    "weight_changes": weight_changes,
    "interference": maps,
    "riskiest_pairs": pairs,
    "first_task": first_task,
    "causes": causes,
    "presets": presets,
}
OF_REPLAY: Mapping[str, Callable[[Study], pl.DataFrame]] = {
    "replay": replay,
    "projection_drift": projection_drift,
}
NAMES = [*FROM_STORE, "learning_rates", "backbones", "published", "claims"]


def make_tables(study: Study) -> dict[str, pl.DataFrame]:
    """Make every table of a study; those about what it does not contain are empty.

    Tables of networks trained end to end are made only where there are some.
    """
    tables = {name: make(study) for name, make in FROM_STORE.items()}
    tables["learning_rates"] = rates(tables["iid"])
    tables["backbones"] = backbones(tables["iid"], study.data)
    tables["published"] = reproduction(tables["iid"])
    if study.replay.height:
        tables |= {name: make(study) for name, make in OF_REPLAY.items()}
    tables["claims"] = claims(tables["accuracy"], tables["iid"], tables.get("replay"))
    return tables
