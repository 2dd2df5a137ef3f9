"""What one client may ask for, and what all of them together may hold. No framework is needed to read it."""

from dataclasses import dataclass

MEGA = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Beyond them a request is refused, and the server goes on."""

    bytes: int = 20 * MEGA
    """Of a file that is sent: a photograph has 2 to 15 million."""
    held: int = 200 * MEGA
    """Bytes of all files that are being received or wait to be decoded."""
    pixels: int = 50 * MEGA
    """Of an image, as it is sent and as it is resized. A small file can hold billions."""
    json: int = MEGA
    """Bytes of an embedding that is sent as JSON."""
    queue: int = 64
    """Requests that wait for the model. One more is asked to come again."""
    batch: int = 16
    """Images that go through the model at once."""
    neighbors: int = 200
    """The largest k."""
    seconds: float = 30.0
    """For a whole file to arrive."""
    header_seconds: float = 10.0
    """For the head of a request to arrive, and for the next request on a connection."""
    connections: int = 256
    """Open at once."""
