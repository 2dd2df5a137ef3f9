"""The server: its socket, its patience with clients, and how it stops."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from isosphere.errors import BadArgument
from isosphere.gallery import Gallery

from .app import make_app
from .limits import Limits

LOOPBACK = ("127.0.0.1", "localhost", "::1")
GRACE = 5  # seconds for answers on their way when the server is stopped


def serve(gallery: Gallery, held: socket.socket, limits: Limits, ready: Callable[[], None]) -> None:
    """Serve a gallery on a socket until SIGINT or SIGTERM; `ready` is called when it listens."""
    host = held.getsockname()[0]
    server = Server(make_app(gallery, limits, LOOPBACK if host in LOOPBACK else ()), limits, ready)
    server.run(sockets=[held])


def listening(host: str, port: int) -> socket.socket:
    """A socket on this address; port 0 is any that is free."""
    if not 0 <= port < 2**16:
        raise BadArgument("--port", port, "from 0 to 65535")
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
    except OSError as error:
        raise BadArgument("--host", host, f"an address of this machine ({error.strerror})") from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(place)
    except OSError as error:
        found.close()
        raise BadArgument("--port", port, f"a free port of {host} ({error.strerror})") from error
    return found


class Server(uvicorn.Server):
    """uvicorn with limits, that ends quietly when it is asked to."""

    def __init__(self, app: ASGIApp, limits: Limits, ready: Callable[[], None] = lambda: None) -> None:
        patient = type("Protocol", (Impatient,), {"seconds": limits.header_seconds})
        super().__init__(
            uvicorn.Config(
                app,
                http=patient,
                ws="none",
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=limits.connections,
                timeout_keep_alive=int(limits.header_seconds),
                timeout_graceful_shutdown=GRACE,
            )
        )
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn, but a signal that was obeyed is not raised again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Impatient(H11Protocol):
    """A connection that is closed when the head of a request takes too long."""

    seconds = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._answered()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._answered()  # a request is on its way: its body has a limit of its own
        else:
            self._wait()

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self._give_up)

    def _answered(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.abort()
