"""How it ends and begins: signals, a second service, backups, and what a start refuses."""

import json
import signal
import sqlite3
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

import lastlayer as ll
from conftest import PATIENCE, ROOT, made_up, running, save_head, start

Z, Y = made_up(40, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: int) -> None:
    save_head(tmp_path / "h.safetensors")
    with running(tmp_path / "h.safetensors", "--store", tmp_path / "live") as service:
        answers: list[int] = []

        def client(place: int) -> None:
            body = {"rows": Z[place : place + 1].tolist(), "labels": [Y[place]]}
            answers.append(service.ask("/learn", body)[0])

        service.process.send_signal(signal.SIGSTOP)
        threads = [threading.Thread(target=client, args=(n,)) for n in range(10)]
        for thread in threads:
            thread.start()
        while _queued(service.port) < 10:  # all of them are in flight
            pass
        service.process.send_signal(signal.SIGCONT)
        wait = service.ask("/health")[0]
        assert wait == 200
        assert service.stop(number) == 0
        for thread in threads:
            thread.join()
        assert answers == [200] * 10
        assert service.said[-1].startswith("stopped")
    clf = ll.HeadClassifier.load(tmp_path / "live" / "h" / "head.safetensors")
    assert clf.head_.records["change"] == 10


def _queued(port: int) -> int:
    """Count the established connections to a port, as this system lists them."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    here = f":{port:04X}"
    return sum(line.split()[2].endswith(here) and line.split()[3] == "01" for line in lines)


def run(*arguments: object) -> tuple[int, str]:
    command = [sys.executable, "-m", "lastlayer", "serve", *map(str, arguments)]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_what_a_start_refuses(tmp_path: Path) -> None:
    head, store = tmp_path / "h.safetensors", tmp_path / "live"
    save_head(head)
    (tmp_path / "short").write_text("read a\nchange b\n")
    cases = {
        ("--store", store): "name the file of a head to begin with",
        (head, "--store", store, "--host", "0.0.0.0"): "pass --token-file",
        (head, "--store", store, "--token-file", tmp_path / "short"): "at least 16 characters",
        (head, "--store", head / "live"): "cannot write to",
        (head, "--store", store, "--labels", "some"): "open, known or a number",
        (head, "--store", store, "--pending", "soon"): "24h, 30min or 7d",
        (head, "--store", store, "--host", "192.0.2.1", "--token-file", tmp_path / "no"): "no",
    }
    for arguments, words in cases.items():
        code, said = run(*arguments, "--port", "0")
        assert code == 1, said
        assert words in said
        assert "Traceback" not in said
    with running(head, "--store", store):
        code, said = run("--store", store, "--port", "0")
        assert code == 1
        assert f"another service is at work on {store}: stop it, or take another store" in said
        save_head(tmp_path / "other.safetensors")
        code, said = run(tmp_path / "other.safetensors", "--store", store, "--port", "0")
        assert code == 1
        assert f"another service is at work on {store}: stop it, or take another store" in said
        assert not (store / "other").exists()
    with running(tmp_path / "other.safetensors", "--store", store):  # let go, though it was killed
        assert (store / "other").exists()


def test_a_backup_of_a_service_at_work(tmp_path: Path) -> None:
    save_head(tmp_path / "h.safetensors")
    with running(tmp_path / "h.safetensors", "--store", tmp_path / "live") as service:
        stop = threading.Event()
        learned = []

        def client() -> None:
            while not stop.is_set():
                n = len(learned)
                row, label = Z[n % 40 : n % 40 + 1].tolist(), [Y[n % 40]]
                ask = {"rows": row, "labels": label}
                learned.append(service.ask("/learn", ask)[1]["change"])
                if n % 5 == 4:
                    service.ask("/forget", ask)

        thread = threading.Thread(target=client)
        thread.start()
        copies = []
        for number in range(3):
            before = learned[-1] if learned else 0
            code, said = run("--store", tmp_path / "live", "--backup", tmp_path / f"{number}.tar")
            assert code == 0, said
            copies.append(before)
        stop.set()
        thread.join()
    for number, before in enumerate(copies):
        with tarfile.open(tmp_path / f"{number}.tar") as tar:
            assert {member.mode for member in tar} == {0o600}
            tar.extractall(tmp_path / f"copy-{number}", filter="data")
        with running("--store", tmp_path / f"copy-{number}") as service:
            assert service.ask("/status")[1]["change"] >= before


def test_a_clock_that_goes_back_is_named(tmp_path: Path) -> None:
    save_head(tmp_path / "h.safetensors")
    options = [tmp_path / "h.safetensors", "--store", tmp_path / "live"]
    with running(*options) as service:
        assert service.said[0] == "loading h …\n"
        assert service.ask("/predict", {"rows": Z[:1].tolist(), "id": "a"})[0] == 200
        assert service.ask("/status")[1]["trouble"] == []
        assert service.stop() == 0
    later = sqlite3.connect(tmp_path / "live" / "h" / "journal.sqlite")
    later.execute("UPDATE waiting SET since = since + 5000")
    later.commit()
    later.close()
    with running(*options) as service:
        (said,) = service.ask("/status")[1]["trouble"]
        assert "the clock has gone back by" in said
        assert service.ask("/learn", {"id": "a", "label": Y[0]})[0] == 200
        assert service.stop() == 0
        assert any("the clock has gone back by" in line for line in service.said)


def test_a_store_goes_on_after_a_kill(tmp_path: Path) -> None:
    save_head(tmp_path / "h.safetensors")
    options = [tmp_path / "h.safetensors", "--store", tmp_path / "live", "--fresh", "0"]
    service = start(*options)
    service.ask("/learn", {"rows": Z.tolist(), "labels": Y})
    answer = service.ask("/predict", {"rows": Z.tolist()})[1]
    assert service.stop(signal.SIGKILL) == -signal.SIGKILL
    with running(*options) as again:
        found = again.ask("/predict", {"rows": Z.tolist()})[1]
        assert json.dumps(found) == json.dumps(answer)
