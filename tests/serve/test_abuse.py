"""Clients that mean harm, or many: the server stays up, small and quick. The crowd stays for HOSTILE_SECONDS."""

import io
import os
import random
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from asking import Address, ask

SECONDS = float(os.environ.get("HOSTILE_SECONDS", 3))
CLIENTS = 64
GROWTH = 40_000_000  # bytes of memory: what 64 requests hold at once, and what the allocator keeps


def memory(process: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def photo(size: tuple[int, int], kind: str, seed: int = 0) -> bytes:
    """A picture as a file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1] // 20, size[0] // 20, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize(size).save(file, kind)
    return file.getvalue()


def crowd(address: Address, seconds: float, clients: int = CLIENTS) -> Counter:
    """Clients that ask one thing after the other for so long; how often each status came."""
    files = [photo((160, 120), kind, seed) for seed, kind in enumerate(("jpeg", "png", "webp", "bmp"))]
    end, found, lock = time.monotonic() + seconds, Counter(), threading.Lock()

    def work(seed: int) -> None:
        chance, mine, connection = random.Random(seed), Counter(), address.connect()
        while time.monotonic() < end:
            path = chance.choice(["/search?k=20", "/embed", f"/neighbors/{chance.randrange(50)}", "/images?k=20", "/"])
            body = chance.choice([*files, b"no image"]) if path.startswith(("/search", "/embed")) else None
            answer = ask(connection, path, body)
            mine[answer.status] += 1
            if answer.status == 503:
                time.sleep(0.05)
        connection.close()
        with lock:
            found.update(mine)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.extras  # as processes start slowly
def test_a_crowd_is_served_in_flat_memory(gallery_folder, serving_process):
    with serving_process(gallery_folder, "--queue", "32") as (process, address):
        crowd(address, 1.5)
        before = memory(process.pid)
        found = crowd(address, SECONDS)
        after = memory(process.pid)
        assert set(found) <= {200, 415, 503} and found[200] > 10 * SECONDS and found[415]
        assert after - before < GROWTH, f"{before:,} -> {after:,} bytes after {sum(found.values())} requests"
        assert address.ask("/health").json["waiting"] == 0 and process.poll() is None


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *more: bytes) -> bytes:
    """A PNG of zeros with more chunks before its pixels, of a size that its few bytes do not show."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * min(width * height * 3 + height, 50_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(more) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def packed(kind: bytes) -> bytes:
    return chunk(kind, b"a\0\0" + zlib.compress(b"0" * 30_000_000, 9))


def gif(width: int, height: int) -> bytes:
    size = struct.pack("<HH", width, height)
    return b"GIF89a" + size + b"\0\0\0,\0\0\0\0" + size + b"\0\x02\x02D\x01\0;"


def many_frames() -> bytes:
    file = io.BytesIO()
    frames = [Image.new("P", (400, 400), color) for color in range(200)]
    frames[0].save(file, "gif", save_all=True, append_images=frames[1:])
    return file.getvalue()


BOMBS = {
    "a square of 900 million pixels": lambda: (png(30_000, 30_000), {413}),
    "2 to the 31 wide": lambda: (png(2**31 - 1, 1), {413, 415}),
    "thin": lambda: (png(400_000, 1), {413}),
    "thin the other way": lambda: (png(1, 400_000), {413}),
    "60 million pixels": lambda: (png(10_000, 6_000), {413}),
    "no pixels": lambda: (png(0, 10), {413, 415}),
    "a GIF of 4 billion pixels": lambda: (gif(65_535, 65_535), {413}),
    "200 frames": lambda: (many_frames(), {200}),
    "text that unpacks to 30 million": lambda: (png(9, 9, packed(b"zTXt")), {200, 415}),
    "colors that unpack to 30 million": lambda: (png(9, 9, packed(b"iCCP")), {200, 415}),
    "words": lambda: (b"GET / HTTP/1.1\r\n\r\n", {415}),
    "a page": lambda: (b"<html><script>alert(1)</script></html>", {415}),
    "an SVG": lambda: (b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>', {415}),
    "PostScript": lambda: (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run\n", {415}),
    "a pickle": lambda: (b"\x80\x04cos\nsystem\n(S'true'\ntR.", {415}),
    "noise": lambda: (random.Random(0).randbytes(100_000), {415}),
    "half a JPEG": lambda: (photo((800, 600), "jpeg")[:2000], {415}),
    "a JPEG with noise in it": lambda: (noisy(photo((800, 600), "jpeg")), {200, 415}),
    "a TIFF that points to itself": lambda: (b"II*\0\x08\0\0\0\0\0\x08\0\0\0", {415}),
}  # fmt: skip


def noisy(file: bytes) -> bytes:
    return file[:700] + random.Random(1).randbytes(300) + file[1000:]


@pytest.mark.extras
def test_bombs_and_what_is_no_image_are_refused_in_flat_memory(gallery_folder, serving_process):
    with serving_process(gallery_folder) as (process, address):
        address.ask("/search", photo((4000, 3000), "jpeg"))
        before = memory(process.pid)
        for name, make in BOMBS.items():
            body, statuses = make()
            begin = time.monotonic()
            answer = address.ask("/search", body)
            assert answer.status in statuses, (name, answer)
            assert time.monotonic() - begin < 5 and b"root:" not in answer.body and b"Trace" not in answer.body, name
        assert memory(process.pid) - before < GROWTH
        process.terminate()
        assert process.communicate(timeout=20)[1] == "", "no traceback"


def test_slow_clients_are_sent_away_and_keep_nobody_waiting(server, photos):
    """Some send half a head, some half a body, some one byte after the other, some nothing, or read nothing."""
    whole = (photos / "class1" / "1.png").read_bytes()
    head = f"POST /search HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: {len(whole)}\r\n\r\n".encode()
    starts = (b"", b"POST /sea", head[:-2], head, head + whole[:100])
    slow = [socket.create_connection(server) for _ in range(8) for _ in starts]
    begin = time.monotonic()
    for place, connection in enumerate(slow):
        connection.settimeout(8)
        connection.sendall(starts[place % len(starts)])
    times = []
    while time.monotonic() - begin < 0.8:
        for connection in slow[4::5]:
            connection.sendall(b"\0")
        once = time.monotonic()
        assert server.ask("/search", whole).status == 200
        times.append(time.monotonic() - once)
    assert max(times) < 2
    found = Counter()
    for place, connection in enumerate(slow):
        answer = b""
        while fresh := connection.recv(4096):
            answer += fresh
        found[place % len(starts), answer[9:12]] += 1
        connection.close()
    assert time.monotonic() - begin < 6, "a second each, not one after the other"
    assert found == {(0, b""): 8, (1, b""): 8, (2, b""): 8, (3, b"408"): 8, (4, b"408"): 8}
    assert server.ask("/health").json["waiting"] == 0


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(server, photos):
    whole = (photos / "class1" / "1.png").read_bytes()
    for length in (1, len(whole)):
        for _ in range(20):
            with socket.create_connection(server) as connection:
                head = f"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(whole)}\r\n\r\n"
                connection.sendall(head.encode() + whole[:length])
    deadline = time.monotonic() + 5
    while server.ask("/health").json["waiting"]:
        assert time.monotonic() < deadline
    assert server.ask("/search", whole).status == 200


PATHS = (
    "/../../../../etc/passwd", "/..%2f..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
    "/etc/passwd", "/thumbnails/../../manifest.json", "/thumbnails/..%2fmanifest.json", "/thumbnails/%2fetc%2fpasswd",
    "/thumbnails/1/../../page.js", "/thumbnails/1%00", "/thumbnails/1.5", "/thumbnails/0x1", "/manifest.json",
    "/gallery/manifest.json", "/data-1/vectors.npy", "/page.py", "/__init__.py", "/page/page.html", "/page.html",
    "/..\\..\\etc\\passwd", "/.%00./etc/passwd", "/;/etc/passwd", "file:///etc/passwd", "/static/../app.py",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out_of_the_gallery(server, path):
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    answer = server.raw(request)
    assert answer[:12] in (b"HTTP/1.1 404", b"HTTP/1.1 400"), answer
    assert not any(inside in answer for inside in (b"root:", b"import", b"vectors", b"fingerprint"))


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 5000, b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=lambda sent: sent[:20].decode("latin1").replace("\0", "0"),
)  # fmt: skip
def test_what_is_no_request_is_refused(server, sent):
    """Also a body that comes in pieces and never ends, or whose length is a lie."""
    assert server.raw(sent)[9:12] in (b"400", b"403", b"")
    assert server.ask("/health").status == 200


def test_a_body_in_pieces_without_an_end_is_cut(server):
    """What comes after the refusal is thrown away for a second, as clients read no answer before they have sent."""
    head = b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(server, timeout=10) as connection:
        connection.sendall(head)
        begin = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begin < 9:
                connection.sendall(b"2710\r\n" + b"0" * 10_000 + b"\r\n")
        assert time.monotonic() - begin < 4
    assert server.ask("/health").status == 200
