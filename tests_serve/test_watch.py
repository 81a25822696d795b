"""A service that watches its heads: its paths, its metrics, and what it tells."""

import json
from contextlib import closing
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

import lastlayer as ll
from conftest import made_up, running, save_head, wait_for
from lastlayer.errors import TakenError
from lastlayer.live import Client


def metric(url: str, name: str) -> float:
    with urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_strange_inputs_are_seen_told_and_survive_a_restart(tmp_path: Path) -> None:
    save_head(tmp_path / "birds.safetensors")
    told = tmp_path / "told.json"
    z, y = made_up(120, 1)
    store = tmp_path / "live"
    watched = ("--rows-between", 2000, "--on-alarm", f"cat > {told}.new; mv {told}.new {told}")
    with (
        running(tmp_path / "birds.safetensors", "--store", store, *watched) as service,
        closing(Client(service.url)) as client,
    ):
        client.predict(z)
        client.learn(z, y)
        wait_for(lambda: client.watch()["questions"][0]["rows"] == 120)
        said = client.watch()
        assert "2,000 rows between false alarms" in said["promise"]
        assert [one["alarm"] for one in said["questions"]] == [False, False, False]
        assert [one["rows"] for one in said["report"]["verdicts"]] == [120, 240, 120]
        client.predict(np.asarray(z) + 30)
        wait_for(told.exists)
        assert {one["question"] for one in json.loads(told.read_text())} == {"strange"}
        assert {one["head"] for one in json.loads(told.read_text())} == {"birds"}
        labels = '{head="birds",question="strange"}'
        assert metric(service.url, "lastlayer_watch_alarm" + labels) == 1
        assert metric(service.url, "lastlayer_watch_alarms_total" + labels) >= 1
        assert metric(service.url, "lastlayer_watch_rows_total" + labels) == 360
        assert service.stop() == 0
    kept = ll.load_head(store / "birds" / "head.safetensors").records["watch"]
    assert kept["settings"]["rows"] == 2000
    with running("--store", store) as service, closing(Client(service.url)) as client:
        assert client.status()["watch"]["questions"][1]["rows"] == 360
        with urlopen(Request(f"{service.url}/watch/reset", method="POST")) as answer:
            assert json.load(answer) == {"reset": True}
        assert client.watch()["questions"][1]["rows"] == 0


def test_a_head_that_is_not_watched_says_so(tmp_path: Path) -> None:
    save_head(tmp_path / "birds.safetensors")
    with (
        running(tmp_path / "birds.safetensors", "--store", tmp_path / "live") as service,
        closing(Client(service.url)) as client,
    ):
        with pytest.raises(TakenError, match="not watched: start the service with --false-alarms"):
            client.watch()
        assert client.status()["watch"] is None
