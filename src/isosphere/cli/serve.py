"""Serve a gallery: a page to look through it by photos, and an HTTP interface.

  isosphere serve gallery
  isosphere serve gallery --port 9000 --device cpu
  curl --data-binary @photo.jpg 'http://127.0.0.1:8000/search?k=5'

Open the address that it prints, and drop a photo there. Programs find the interface at /openapi.json.

It listens on this machine alone, so others cannot reach it. With --host 0.0.0.0 all can who reach this machine:
there is no password, so put a proxy with one in front. Nothing outside of the gallery is served.
Photos that are sent are searched with, and not kept. Ctrl-C stops it.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser
from isosphere.errors import BadArgument


def declare(parser: Parser) -> None:
    parser.add_argument("gallery", type=Path, help="a folder that `isosphere index` made")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; by default this machine alone")
    parser.add_argument("--port", type=int, default=8000, help="by default 8000; 0 is any that is free")
    parser.add_argument("--run", type=Path, help="the model's run folder, if it has moved")
    parser.device()
    limits = parser.add_argument_group("limits")
    limits.add_argument("--megabytes", type=float, default=20, help="of a photo that is sent; by default 20")
    limits.add_argument("--megapixels", type=float, default=50, help="of a photo; by default 50")
    limits.add_argument("--queue", type=int, default=64, help="requests that may wait; by default 64")
    limits.add_argument("--batch", type=int, default=16, help="photos embedded at once; by default 16")
    limits.add_argument("--seconds", type=float, default=30, help="in which a photo must arrive; by default 30")


def run(asked: Namespace) -> None:
    from isosphere.gallery import load_gallery
    from isosphere.serve import LOOPBACK, Limits, listening, serve

    for name in ("megabytes", "megapixels", "queue", "batch", "seconds"):
        if not 0 < getattr(asked, name) < float("inf"):
            raise BadArgument(f"--{name}", getattr(asked, name), "a number above 0")
    sizes = {"bytes": int(asked.megabytes * 1e6), "pixels": int(asked.megapixels * 1e6)}
    limits = Limits(queue=asked.queue, batch=asked.batch, seconds=asked.seconds, **sizes)
    gallery = load_gallery(asked.gallery, asked.device)
    if asked.run is not None:
        gallery.use(asked.run)
    with listening(asked.host, asked.port) as held:
        host, port = held.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host

        def ready() -> None:
            print(f"{asked.gallery}: {len(gallery):,} images at http://{shown}:{port} - Ctrl-C stops", flush=True)
            if host not in LOOPBACK:
                print("all who reach this machine can search it: there is no password", flush=True)

        serve(gallery, held, limits, ready)
    print("stopped")
