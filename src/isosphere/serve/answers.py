"""What a request is answered with: JSON, or why it is refused in one line of it, {"error": "..."}."""

import json
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response


class Json(Response):
    """JSON in ASCII, as names of files may be no text in UTF-8."""

    media_type: Any = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def refusal(status: HTTPStatus, reason: str, **headers: str) -> HTTPException:
    """An error that the app answers with."""
    return HTTPException(status, reason, {name.replace("_", "-"): value for name, value in headers.items()})


def bad(reason: str) -> HTTPException:
    """A parameter or a body that cannot be."""
    return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, reason)


def busy(reason: str) -> HTTPException:
    """Too much work at once."""
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, reason, Retry_After="1")


def too_large(reason: str) -> HTTPException:
    """More bytes or pixels than one request may have."""
    return refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)


def no_such(what: str) -> HTTPException:
    """Something that the gallery does not have."""
    return refusal(HTTPStatus.NOT_FOUND, f"there is no {what}")
