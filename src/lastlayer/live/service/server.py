"""Runs the service: one process, which ends in order when it is told to."""

import contextlib
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping

import uvicorn
from starlette.types import ASGIApp

from lastlayer.core.files import say
from lastlayer.errors import OptionError
from lastlayer.live.live_head import LiveHead
from lastlayer.live.service.protocol import Patient

KEEP_ALIVE = 75  # seconds for which a connection may wait for its next request
GRACE = 20  # seconds for what is in flight when the service is told to end
HEADER_BYTES = 16 << 10
BACKLOG = 1024


class Server(uvicorn.Server):
    """uvicorn's, but a signal that ends it is its own business: uvicorn raises it once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Note SIGINT and SIGTERM, to end in order."""
        stops = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in stops}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 is any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OptionError(f"cannot listen on {host} port {port}: {say(error)}") from error
    # Connections inherit it. asyncio sets it for sockets that name their protocol only; without it
    # an answer waits 40 ms for the client to acknowledge its header.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def serve(
    app: ASGIApp, heads: Mapping[str, LiveHead], place: socket.socket, ready: Callable[[], None]
) -> None:
    """Answer until SIGTERM or SIGINT; then answer what is in flight, and write checkpoints."""
    sys.setswitchinterval(0.001)  # answers need not wait for others' Python as long as usual
    _allow_many_files()
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app, http=Patient, ws="none", lifespan="off", access_log=False, log_config=None,
        server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE, h11_max_incomplete_event_size=HEADER_BYTES,
    )  # fmt: skip
    with contextlib.ExitStack() as ending:
        for head in heads.values():
            ending.callback(head.close)
        ready()
        Server(config).run(sockets=[place])


def _allow_many_files() -> None:
    """Use as many open files as the system lets us: connections are files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
