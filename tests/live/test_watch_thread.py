"""A live head is watched: what it answered is what is scored, and the watch outlives a restart."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from live_streams import made_up

import lastlayer as ll
from lastlayer.errors import NotCalibratedError, OptionError, UnsupportedError
from lastlayer.live import LiveHead, Replica
from lastlayer.live import watch_thread as module
from lastlayer.live.watch.on_alarm import tell
from lastlayer.live.watch.watch import Alarm

EVER = {"false_alarms": 0.05}


def clf(head: str = "slda") -> ll.HeadClassifier:
    made = ll.HeadClassifier(head, random_state=0, calibration=0.5)
    return made.fit(*made_up(900, 9))


def rows_of(live: LiveHead) -> list[int]:
    assert live.watched is not None
    return [verdict.rows for verdict in live.watched.report().verdicts]


def test_what_it_answers_and_learns_is_watched(tmp_path: Path) -> None:
    z, y = made_up(300, 1)
    with LiveHead(clf(), tmp_path / "live", watch=EVER) as live:
        live.predict(z)
        assert rows_of(live) == [0, 300, 0]
        live.learn(z, y)
        assert rows_of(live) == [300, 600, 300]
        live.predict(z[:1], id="a")
        live.label("a", y[0])
        assert rows_of(live) == [301, 601, 301]  # not asked again whether it is strange
        assert live.watched is not None
        assert not live.watched.report().alarms
        live.learn([[0.0] * 5], ["new"])
        assert "1 rows are of classes that were not calibrated" in str(live.watched.report())
        live.forget(z[:2], y[:2])
        assert "has forgotten rows" in str(live.watched.report())
    with LiveHead(None, tmp_path / "live") as again:
        assert rows_of(again) == [301, 602, 301]
        assert again.watched is not None
        assert "has forgotten rows" in str(again.watched.report())
        again.predict(z)
    with LiveHead(None, tmp_path / "live") as again:
        assert rows_of(again)[1] == 902
        assert again.watched is not None
        again.watched.reset()
        assert rows_of(again) == [0, 0, 0]


def test_answers_are_scored_as_they_were_given() -> None:
    """The label that comes later is compared with the old answer, and never with a newer one."""
    z, _ = made_up(60, 1)
    with LiveHead(clf("mean"), fresh=0, watch=EVER) as live:
        for i, row in enumerate(z):
            live.predict(row[None], id=str(i))
        for i in range(60):
            live.label(str(i), "c0")
        wrong = 1 - np.mean([label == "c0" for label in clf("mean").predict(z)])
        assert live.watched is not None
        said = live.watched.report().verdicts[0]
        assert said.rows == 60
        assert live.watched.watch._state.questions["worse"].hits == round(60 * wrong)
        assert said.alarm


def test_alarms_are_told_once(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    z, y = made_up(600, 1)
    with LiveHead(clf(), watch=EVER, on_alarm=f"cat >> {told}; echo >> {told}") as live:
        live.predict(z + 9)
        live.predict(z + 9)
        assert live.watched is not None
        live.watched.catch_up()
        lines = told.read_text().splitlines()
        assert [[one["question"] for one in json.loads(line)] for line in lines] == [["strange"]]
        assert json.loads(lines[0])[0]["head"] == "slda"
        live.learn(z, y)
        live.watched.catch_up()
    with LiveHead(clf(), watch=EVER, on_alarm="false") as live:
        live.predict(z + 9)
        assert live.watched is not None
        live.watched.catch_up()
        assert "ended with code 1" in live.watched.untold


def test_rows_that_come_too_fast_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 100)
    with LiveHead(clf(), watch=EVER) as live:
        live.predict(made_up(101, 1)[0])
        live.predict(made_up(50, 1)[0])
        assert rows_of(live)[1] == 50
        assert module.status_of(live.watched)["left_out"] == 101  # type: ignore[index]


def test_a_watch_needs_a_calibration_and_a_head_of_its_own(tmp_path: Path) -> None:
    bare = ll.HeadClassifier("slda").fit(*made_up(60, 9))
    with pytest.raises(NotCalibratedError):
        LiveHead(bare, watch=EVER)
    with pytest.raises(OptionError, match="on_alarm needs a watch"):
        LiveHead(bare, on_alarm="true")
    with pytest.raises(UnsupportedError, match="watch the merged head"):
        Replica(clf("mean"), tmp_path / "one", watch=EVER)
    with LiveHead(bare) as live:
        assert live.watched is None


def test_a_head_that_was_watched_goes_on_being_watched() -> None:
    made = clf()
    ll.Watch(made, rows=5000).see(*made_up(30, 3))
    with LiveHead(made) as live:
        assert rows_of(live) == [30, 30, 30]
        assert live.watched is not None
        assert "5,000 rows between false alarms" in live.watched.report().promise


@pytest.fixture
def address() -> Iterator[tuple[str, list[bytes]]]:
    """Give an address that keeps what is sent there, and refuses what is sent to /no."""
    got: list[bytes] = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(404 if self.path == "/no" else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Keep)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_address_is_told(address: tuple[str, list[bytes]]) -> None:
    url, got = address
    tell(url + "/hook", [Alarm("worse", 7, ("It is.",))], "birds")
    assert json.loads(got[0]) == [
        {"head": "birds", "question": "worse", "row": 7, "sentences": ["It is."]}
    ]
    for bad in (url + "/no", "http://127.0.0.1:1/", "http://["):
        with pytest.raises(OptionError, match="could not be told"):
            tell(bad, [])
