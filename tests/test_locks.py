"""The file lock: one process at a time, gone with its process, with the system's lock or without one."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from isosphere import locks
from isosphere.errors import Held, InputError

OTHER = """
import sys, time
if sys.argv[2] == "none":
    sys.modules["fcntl"] = sys.modules["msvcrt"] = None
from isosphere import locks
with locks.hold(sys.argv[1], wait=True):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=["system", "none"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The system's lock, and none."""
    if request.param == "none":
        monkeypatch.setattr(locks, "fcntl", None)
        monkeypatch.setattr(locks, "msvcrt", None)
    return request.param


@pytest.fixture
def other(kind: str, tmp_path: Path) -> Iterator[subprocess.Popen]:
    """Another process that holds the lock until it is sent a line."""
    command = [sys.executable, "-c", OTHER, str(tmp_path / "lock"), kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_second_process_is_refused_with_the_holder(other: subprocess.Popen, tmp_path: Path) -> None:
    with pytest.raises(Held) as raised, locks.hold(tmp_path / "lock"):
        pass
    held = raised.value
    assert isinstance(held, InputError) and isinstance(held, OSError) and held.code == 2
    assert held.path == str(tmp_path / "lock") and str(other.pid) in held.holder.split()
    assert str(pickle.loads(pickle.dumps(held))) == str(held)


def test_who_waits_gets_it_next(other: subprocess.Popen, tmp_path: Path) -> None:
    other.stdin.write("\n")
    other.stdin.flush()
    with locks.hold(tmp_path / "lock", wait=True):
        assert other.wait(20) == 0
        with pytest.raises(Held), locks.hold(tmp_path / "lock"):  # not twice in one process either
            pass
    assert os.listdir(tmp_path) == []


def test_a_killed_holder_lets_go(other: subprocess.Popen, tmp_path: Path) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    with locks.hold(tmp_path / "lock", wait=True):
        assert str(os.getpid()) in locks.holder(tmp_path / "lock").split()
    assert os.listdir(tmp_path) == []


def test_waiting_without_holding(other: subprocess.Popen, tmp_path: Path) -> None:
    locks.wait_until_free(tmp_path / "nothing here")
    begin = time.monotonic()
    subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {other.pid}"])
    other_code = other.wait(20)
    locks.wait_until_free(tmp_path / "lock")
    assert other_code == -signal.SIGKILL and time.monotonic() - begin > 0.2


def test_an_error_inside_lets_go(kind: str, tmp_path: Path) -> None:
    with pytest.raises(KeyError), locks.hold(tmp_path / "lock"):
        raise KeyError
    with locks.hold(tmp_path / "lock"):
        pass


def test_the_lock_of_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its calls on another system's lock: that the file is open, and at which byte."""
    flock, places = locks.fcntl.flock, []

    def locking(file: int, mode: int, count: int) -> None:
        places.append(os.lseek(file, 0, os.SEEK_CUR))
        flock(file, mode)

    windows = SimpleNamespace(LK_NBLCK=locks.fcntl.LOCK_EX | locks.fcntl.LOCK_NB, locking=locking)
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", windows)
    with locks.hold(tmp_path / "lock"):
        assert (tmp_path / "lock").stat().st_size < 1000
        with pytest.raises(Held) as held, locks.hold(tmp_path / "lock"):
            pass
    assert str(os.getpid()) in held.value.holder.split() and places == [locks.BYTE] * 2
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_keeps_no_lock(tmp_path: Path) -> None:
    with locks.hold(tmp_path / "lock"):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    with locks.hold(tmp_path / "lock"):  # the child still runs
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_number_given_again_is_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", None)
    with locks.hold(tmp_path / "lock"):
        left = (tmp_path / "lock").read_bytes()
    started = locks._started(os.getpid())
    (tmp_path / "lock").write_bytes(left.replace(f'"{started}"'.encode(), b'"before"'))
    with locks.hold(tmp_path / "lock"):
        pass
    (tmp_path / "lock").write_bytes(left.replace(b'"machine": "', b'"machine": "other-'))
    with pytest.raises(Held), locks.hold(tmp_path / "lock"):  # nobody here can know whether it runs
        pass


def test_a_file_without_a_holder_is_left_behind_after_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", None)
    (tmp_path / "lock").touch()
    with pytest.raises(Held), locks.hold(tmp_path / "lock"):
        pass
    os.utime(tmp_path / "lock", (0, 0))
    with locks.hold(tmp_path / "lock"):
        pass


def test_many_processes_take_turns(kind: str, tmp_path: Path) -> None:
    """Each adds one to a number in a file, read and written apart: a lost turn would lose a count."""
    code = OTHER.rpartition("with")[0] + (
        "from pathlib import Path\n"
        "count = Path(sys.argv[1]).with_name('count')\n"
        "for _ in range(5):\n"
        "    with locks.hold(sys.argv[1], wait=True):\n"
        "        number = int(count.read_text())\n"
        "        time.sleep(0.002)\n"
        "        count.write_text(str(number + 1))\n"
    )
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", code, str(tmp_path / "lock"), kind]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert (tmp_path / "count").read_text() == "20"
