"""What every answer says to browsers, and requests that other sites made them send, which are refused."""

from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answers import Json

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
SAID = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",  # unless the answer says another
}


class Guard:
    """An app behind these rules. It answers to these `hosts` alone; without any, to all.

    A name of another site that leads to this machine would let that site read the gallery (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def said(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAID.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif reason := self._reason(Headers(scope=scope)):
            await Json({"error": reason}, HTTPStatus.FORBIDDEN)(scope, receive, said)
        else:
            await self.app(scope, receive, said)

    def _reason(self, headers: Headers) -> str:
        """Why a request is refused; empty if it is not."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            other = origin is not None and urlsplit(origin).netloc != host
        except ValueError:
            return "the request names no host"
        if self.hosts and name not in self.hosts:
            return f"this server answers to {', '.join(sorted(self.hosts))}"
        return "requests from other sites are refused" if other else ""
