"""A gallery, and servers of it: in a thread of the test, with limits of its own, or as the command."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from asking import Address
from commands import isosphere
from isosphere import load_gallery
from isosphere.serve import Limits, Server, listening, make_app
from isosphere.serve.server import LOOPBACK


@pytest.fixture(scope="session")
def gallery_folder(trained: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photographs as a gallery."""
    folder = tmp_path_factory.mktemp("served")
    isosphere("index", trained, photos, "--out", "gallery", folder=folder)
    return folder / "gallery"


@contextmanager
def served(folder: Path, limits: Limits) -> Iterator[Address]:
    """A server in a thread."""
    ready = threading.Event()
    with listening("127.0.0.1", 0) as held:
        server = Server(make_app(load_gallery(folder, "cpu"), limits, LOOPBACK), limits, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [held]}, daemon=True)
        thread.start()
        assert ready.wait(60)
        try:
            yield Address(*held.getsockname())
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def server(gallery_folder: Path) -> Iterator[Address]:
    """The photographs, served with short limits."""
    limits = Limits(bytes=300_000, pixels=2_000_000, json=100_000, neighbors=50, seconds=1, header_seconds=1)
    with served(gallery_folder, limits) as address:
        yield address


@pytest.fixture(scope="session")
def serving() -> Callable[..., object]:
    """Serve a folder with given limits, for the length of a block."""
    return served


@contextmanager
def command(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen, Address]]:
    """`isosphere serve` as a process of its own, once it listens; it is killed if it still runs at the end."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    begun = [sys.executable, "-m", "isosphere", "serve", str(folder), "--port", "0", "--device", "cpu", *words]
    process = subprocess.Popen(begun, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stdout.readline()
        found = re.search(r"http://(127\.0\.0\.1):(\d+)", line)
        assert found, line + process.stderr.read()
        yield process, Address(found[1], int(found[2]))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def serving_process() -> Callable[..., object]:
    """`isosphere serve` as a process, for the length of a block."""
    return command
