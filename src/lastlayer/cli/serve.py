"""The verb that serves heads which live: they learn, forget and answer over HTTP."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import say_written
from lastlayer.cli.text import count
from lastlayer.core.extras import extra
from lastlayer.core.names import first_few
from lastlayer.errors import OptionError

if TYPE_CHECKING:
    from lastlayer.live import LiveHead

LOOPBACK = ("127.0.0.1", "localhost", "::1")
RESERVED = ("v1", "v2", "invocations", "ping", "metrics", "health", "login", "live", "predict",
            "learn", "forget", "relabel", "status", "review", "state", "delta", "reload",
            "watch")  # fmt: skip
_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@app.command(rich_help_panel=USE)
def serve(
    store: Annotated[Path, typer.Option(help="Folder of what the heads have learned.")],
    heads: Annotated[
        list[Path] | None,
        typer.Argument(help="Files of heads to begin with; none: go on with those of the store."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any.", min=0, max=65535)] = 8000,
    fresh: Annotated[
        float, typer.Option(help="Seconds until answers know of a change; 0: always.", min=0)
    ] = 1.0,
    unknown: Annotated[
        float | None,
        typer.Option(help="Turn away inputs stranger than all but this share of known ones."),
    ] = None,
    labels: Annotated[
        str, typer.Option(help="open, known (no new ones), or how many new labels may come.")
    ] = "1000",
    pending: Annotated[
        str, typer.Option(help="How long an input waits for its label: 24h, 30min, 7d.")
    ] = "24h",
    false_alarms: Annotated[
        float | None,
        typer.Option(help="Watch the heads: the chance that there is ever a false alarm."),
    ] = None,
    between: options.RowsBetween = None,
    on_alarm: options.OnAlarm = None,
    replica: Annotated[
        bool, typer.Option("--replica", help="Give what was learned as deltas, to be merged.")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="File with lines 'read TOKEN' and 'change TOKEN'.")
    ] = None,
    host_name: Annotated[
        list[str] | None, typer.Option(help="Name by which it may be called; may be repeated.")
    ] = None,
    backup: Annotated[
        Path | None, typer.Option(help="Copy the store to this tar file, and end.")
    ] = None,
) -> None:
    """Serve heads that learn, forget and answer over HTTP, and survive a kill at any moment."""
    if backup is not None:
        from lastlayer.live.store.backup import back_up

        names = back_up(store, backup)
        print(f"copied {', '.join(names)}")
        say_written(backup)
        return
    hosts = _hosts(host, host_name or [], token_file)
    with extra("serve", "lastlayer serve"):
        from lastlayer.live.service import application as service
        from lastlayer.live.service import guard, server
    from lastlayer.live.store.backup import stores_in

    tokens = guard.read_tokens(token_file) if token_file else {}
    place = server.listen(host, port)
    # What a watch is to promise; none: there is to be none that there is not yet.
    asked = {"false_alarms": false_alarms, "rows": between}
    promise = {name: value for name, value in asked.items() if value is not None} or None
    named = _named(store, heads or [])
    with _held(store):
        before = stores_in(store)
        found = _open(store, named, replica, fresh=fresh, unknown=unknown,
                      labels=_labels(labels), pending=_seconds(pending), on_alarm=on_alarm,
                      watch=promise)  # fmt: skip

        def ready() -> None:
            for name, head in found.items():
                print(f"{name}: {head.name}, change {head.change}, in {head.store.folder}")
            for sentence in (*_addresses(store, list(found), before), _unknown(unknown)):
                print(sentence)
            shown = f"[{host}]" if ":" in host else host
            print(f"listening on http://{shown}:{place.getsockname()[1]}", flush=True)

        server.serve(service.make_app(found, tokens, hosts), found, place, ready)
        unsaved = {name: why for name, head in found.items() if (why := head.unsaved)}
        print(f"stopped; {count(len(found) - len(unsaved), 'head')} saved")
        for name, why in unsaved.items():
            print(f"{name}: no checkpoint, what it acknowledged is in its journal: {why}")


def _named(store: Path, files: list[Path]) -> dict[str, Path | None]:
    """Return the heads to serve by name, each with the file that it begins with."""
    from lastlayer.live.store.backup import stores_in

    named: dict[str, Path | None] = {_name(file): file for file in files}
    named = named or dict.fromkeys(stores_in(store))
    if not named:
        raise OptionError(f"name the file of a head to begin with: there is none in {store} yet")
    if len(named) < len(files):
        raise OptionError("heads that are served together need files of different names")
    return named


@contextmanager
def _held(store: Path) -> Iterator[None]:
    """Hold a store: no other service works there, not even with other heads."""
    from lastlayer.live.store.head_store import ALL, locked

    lock = locked(store, ALL)
    try:
        yield
    finally:
        lock.release()


def _open(
    store: Path, named: dict[str, Path | None], replica: bool, **how: Any
) -> "dict[str, LiveHead]":
    """Open the heads, each with a store of its own under its name."""
    from lastlayer.live import LiveHead, Replica

    print(f"loading {', '.join(named)} …", flush=True)  # solving may take seconds
    kind = Replica if replica else LiveHead
    found: dict[str, LiveHead] = {}
    try:
        for name, file in named.items():
            found[name] = kind(file, store / name, **how)
    except BaseException:
        for head in found.values():
            head.close()
        raise
    return found


def _addresses(store: Path, names: list[str], before: list[str]) -> list[str]:
    """Return what to say of heads that are new beside others, and of the addresses of several."""
    said = []
    new, others = set(names) - set(before), set(before) - set(names)
    if before and new:
        said.append(f"added to {store}, which held {first_few(before)}: {first_few(sorted(new))}")
    if others:
        said.append(
            f"not served now, though in {store}: {first_few(sorted(others))}; a start without "
            f"files serves all, each under its name ({_paths([*names, *others])})"
        )
    if len(names) > 1:
        said.append(f"several heads are served: ask under {_paths(names)}; /predict alone is 404")
    return said


def _paths(names: list[str]) -> str:
    return first_few([f"/{name}/…" for name in sorted(names)], 5)


def _unknown(share: float | None) -> str:
    """Return whether inputs are turned away: the store does not remember it."""
    if share is None:
        return (
            '"I don\'t know" is off: every input gets a label; --unknown SHARE turns strange ones '
            "away"
        )
    return (
        f'"I don\'t know" is on: inputs stranger than all but {100 * share:g} % of known ones get '
        "the label null"
    )


def _name(file: Path) -> str:
    name = file.name.removesuffix(".safetensors")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name) or name in RESERVED:
        raise OptionError(
            f"a head is served under the name of its file, which {file.name} cannot be: rename it"
        )
    return name


def _hosts(host: str, names: list[str], token_file: Path | None) -> list[str]:
    """Return the names by which the service may be called; refuse to be open without tokens."""
    from socket import gethostname

    local = ["localhost", "127.0.0.1", "[::1]"]
    if host in LOOPBACK:
        return [*local, *names]
    if token_file is None:
        raise OptionError(
            f"to listen on {host} for other machines, pass --token-file with lines 'read TOKEN' "
            "and 'change TOKEN'"
        )
    return [*local, f"[{host}]" if ":" in host else host, gethostname(), *names]


def _labels(text: str) -> str | int:
    if text in ("open", "known"):
        return text
    if not (text.isascii() and text.isdigit()):
        raise OptionError(f"--labels must be open, known or a number, got {text}")
    return int(text)


def _seconds(text: str) -> float:
    """Return a time in seconds.

    >>> _seconds("24h")
    86400.0
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise OptionError(f"--pending must be a time such as 24h, 30min or 7d, got {text}")
    return float(found[1]) * _SECONDS[found[2]]
