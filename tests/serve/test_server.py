"""`isosphere serve` as a process: its address, its end by signals, and what it refuses before it listens."""

import signal
import socket

import pytest

from commands import has, refusal
from isosphere.errors import BadArgument, NotAGallery


@pytest.mark.extras  # as processes start slowly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_quietly_when_it_is_asked_to(gallery_folder, photos, serving_process, number):
    with serving_process(gallery_folder) as (process, address):
        idle = address.connect()  # one that stays open does not keep it
        idle.connect()
        image = (photos / "class1" / "1.png").read_bytes()
        assert address.ask("/search", image).status == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "stopped\n", "")
        idle.close()


def test_what_cannot_be_served_is_refused_at_once(gallery_folder, tmp_path):
    assert has(refusal("serve", tmp_path, folder=tmp_path), NotAGallery)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert has(refusal("serve", gallery_folder, "--port", port, folder=tmp_path), BadArgument, name="--port")
    assert has(refusal("serve", gallery_folder, "--port", 99999, folder=tmp_path), BadArgument, name="--port")
    assert has(refusal("serve", gallery_folder, "--host", "192.0.2.1", folder=tmp_path), BadArgument)
    assert has(refusal("serve", gallery_folder, "--queue", 0, folder=tmp_path), BadArgument, name="--queue")
    assert has(refusal("serve", gallery_folder, "--seconds", "nan", folder=tmp_path), BadArgument, name="--seconds")
