"""Requests to a server on this machine, by the standard library: whole ones, and ones that no client would send."""

import contextlib
import http.client
import json
import socket
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What a server answered; `json` where it is JSON."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        """A connection for one request after the other."""
        return http.client.HTTPConnection(self.host, self.port, timeout=30)

    def ask(self, path: str, body: Any = None, method: str | None = None, **headers: str) -> Answer:
        """One request: POST with a body, of which what is not bytes is sent as JSON."""
        connection = self.connect()
        try:
            return ask(connection, path, body, method, **headers)
        finally:
            connection.close()

    def raw(self, *parts: bytes, seconds: float = 10) -> bytes:
        """What comes back for these bytes until the server closes, within so many seconds."""
        found = b""
        with socket.create_connection(self, timeout=seconds) as connection, contextlib.suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
            while fresh := connection.recv(65536):
                found += fresh
        return found


def ask(
    connection: http.client.HTTPConnection, path: str, body: Any = None, method: str | None = None, **headers: str
) -> Answer:
    """One request on a connection that stays open."""
    if body is not None and not isinstance(body, bytes):
        body, headers = json.dumps(body).encode(), {"Content_Type": "application/json", **headers}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method or ("GET" if body is None else "POST"), path, body, named)
    answer = connection.getresponse()
    return Answer(answer.status, answer.headers, answer.read())
