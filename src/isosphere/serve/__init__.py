"""A gallery over HTTP: a page to look through it, and an interface for programs. Loopback by default."""

from isosphere.errors import need_all

need_all("serve", "isosphere.serve")

from .app import make_app  # noqa: E402
from .limits import Limits  # noqa: E402
from .server import LOOPBACK, Server, listening, serve  # noqa: E402

__all__ = ["LOOPBACK", "Limits", "Server", "listening", "make_app", "serve"]
