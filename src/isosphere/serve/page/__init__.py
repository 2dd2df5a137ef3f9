"""The page: three files that stay as they are. What the gallery says reaches it as JSON, and is shown as text."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isosphere import report

HERE = Path(__file__).parent
LOOK = Path(report.__file__).parent / "page" / "page.css"
"""Colors and letters of all our pages; this one adds its own."""


def page_routes() -> list[Route]:
    """The page's addresses."""
    style = LOOK.read_text(encoding="utf-8") + (HERE / "page.css").read_text(encoding="utf-8")
    texts = {
        "/": ("text/html", (HERE / "page.html").read_text(encoding="utf-8")),
        "/page.css": ("text/css", style),
        "/page.js": ("text/javascript", (HERE / "page.js").read_text(encoding="utf-8")),
        "/icon.svg": ("image/svg+xml", (HERE / "page.svg").read_text(encoding="utf-8")),
    }
    return [Route(path, _fixed(kind, text)) for path, (kind, text) in texts.items()]


def _fixed(kind: str, text: str) -> Callable[[Request], Awaitable[Response]]:
    """What answers with a text that stays as it is."""

    async def shown(request: Request) -> Response:
        return Response(text, media_type=kind, headers={"Cache-Control": "no-cache"})

    return shown
