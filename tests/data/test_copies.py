from pathlib import Path

from isosphere.data import copies


def test_only_files_of_a_size_on_both_sides_are_read(tmp_path: Path, monkeypatch) -> None:
    held = {"a": b"same", "b": b"other", "c": b"long as none", "x": b"size", "y": b"same", "z": b"of no size there"}
    for name, content in held.items():
        (tmp_path / name).write_bytes(content)
    paths, others = ([str(tmp_path / name) for name in names] for names in ("abc", "xyz"))
    read, digest = [], copies._digest
    monkeypatch.setattr(copies, "_digest", lambda path: (read.append(Path(path).name), digest(path))[1])
    assert copies.find_copies(paths, others) == {str(tmp_path / "a"): str(tmp_path / "y")}
    assert sorted(read) == ["a", "x", "y"]
    assert copies.find_copies(paths, []) == copies.find_copies([], others) == {}
