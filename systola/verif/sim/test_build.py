# SPDX-License-Identifier: Apache-2.0
"""Tests of results, such as simulators, that are built once and kept for later runs.

Of several processes that need a result, one builds it, even if some processes are ended early.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from systola.sim import build, notices
from systola.sim.build import BuildFolderError, built_once, content_key

KEY = content_key("a key")
SCRIPT = """
import sys, time
from pathlib import Path
from systola.sim import notices
from systola.sim.build import built_once

notices.INTERVAL = 0.1

def make(work: Path) -> Path:
    (work / "half").write_text("done")
    print("working", flush=True)
    while Path(sys.argv[3]).exists():
        time.sleep(0.02)
    return work / "half"

print(built_once(sys.argv[1], sys.argv[2], "making it", make).read_text())
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYSTOLA_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


@contextmanager
def builder(root: Path, key: str, brake: Path) -> Generator[subprocess.Popen[str]]:
    """Start a process that builds a result, and does not end while the file `brake` exists."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "kind", key, str(brake)],
        env={**os.environ, "SYSTOLA_BUILD": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background inherits an ignored SIGINT.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def made(work: Path) -> Path:
    (work / "new").write_text("made")
    return work / "new"


def unfinished(root: Path) -> list[str]:
    return [path.name for path in (root / "kind").glob("make-*")]


def test_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert built_once("kind", KEY, "making it", made).read_text() == "made"
    assert "making it (kept for the next time)" in capsys.readouterr().err
    built_once("kind", KEY, "making it", made)
    assert capsys.readouterr().err == ""
    assert unfinished(root) == []


def test_two_processes(root: Path, tmp_path: Path) -> None:
    """Check that one process builds a result while another waits, and that both report this."""
    brake = tmp_path / "brake"
    brake.touch()
    with builder(root, KEY, brake) as first:
        assert first_line(first) == "working\n"
        with builder(root, KEY, brake) as second:
            assert second.stderr is not None
            waiting = second.stderr.readline()
            assert "another process is making it, this one waits: " in waiting
            brake.unlink()
            assert second.communicate()[0] == "done\n"
        out, err = first.communicate()
    assert out == "done\n"
    assert "making it: 0 s so far" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_early(number: signal.Signals, root: Path, tmp_path: Path) -> None:
    """Check a builder that is ended early: the next process removes leftovers, and builds."""
    brake = tmp_path / "brake"
    brake.touch()
    with builder(root, KEY, brake) as process:
        assert first_line(process) == "working\n"
        process.send_signal(number)
        process.communicate()
    assert len(unfinished(root)) == (0 if number == signal.SIGINT else 1)
    assert built_once("kind", KEY, "making it", made).read_text() == "made"
    assert unfinished(root) == []


def test_leftovers_of_others(root: Path, tmp_path: Path) -> None:
    """Check that a build removes leftovers of its kind, unless their builder still works."""
    brake = tmp_path / "brake"
    brake.touch()
    with builder(root, KEY, brake) as killed:
        assert first_line(killed) == "working\n"
        killed.kill()
    with builder(root, content_key("second"), brake) as working:
        assert first_line(working) == "working\n"
        assert len(unfinished(root)) == 1
        built_once("kind", content_key("third"), "making it", made)
        assert len(unfinished(root)) == 1
        brake.unlink()
        assert working.communicate()[0] == "done\n"


@pytest.mark.parametrize("place", ["/proc/systola", "/dev/null/systola", "{file}/build"])
def test_no_place(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    folder = place.format(file=tmp_path / "file")
    monkeypatch.setenv("SYSTOLA_BUILD", folder)
    with pytest.raises(BuildFolderError, match=rf"cannot build in {folder}\S*: .*SYSTOLA_BUILD"):
        built_once("kind", KEY, "making it", made)


def made_folder(work: Path) -> Path:
    (work / "new" / "part").mkdir(parents=True)
    (work / "new" / "part" / "file").write_bytes(b"made" * 1000)
    (work / "new" / "other").write_bytes(b"made")
    return work / "new"


def cut(path: Path) -> None:
    """Cut a file in half, as a loss of power may do."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Flip a bit of a file, and keep the file's size."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
@pytest.mark.parametrize("place", ["{key}", "{key}.sha256", "{folder}/part/file", "{folder}/other"])
def test_damaged(
    damage: Callable[[Path], object], place: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that a damaged result, as after a loss of power, is built again, once."""
    make = made_folder if "folder" in place else made
    result = built_once("kind", KEY, "making it", make)
    whole = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    damage(root / "kind" / place.format(key=KEY, folder=KEY))
    capsys.readouterr()
    assert built_once("kind", KEY, "making it", make) == result
    assert "making it (kept for the next time)" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == whole
    built_once("kind", KEY, "making it", make)
    assert capsys.readouterr().err == ""


def test_a_damaged_simulator(root: Path) -> None:
    """Check that a shared library that was cut short is built again.

    Loading the damaged library would end a process with a bus error.
    """

    def compiled(work: Path) -> Path:
        source = "int answer(void) { return 42; }"
        command = ["g++", "-x", "c", "-shared", "-fPIC", "-o", str(work / "a.so"), "-"]
        subprocess.run(command, input=source, text=True, check=True)
        return work / "a.so"

    library = built_once("kind", f"{KEY}.so", "making it", compiled)
    for size in (100, library.stat().st_size // 2):
        library.write_bytes(library.read_bytes()[:size])
        built_once("kind", f"{KEY}.so", "making it", compiled)
        script = f"import ctypes; assert ctypes.CDLL({str(library)!r}).answer() == 42"
        subprocess.run([sys.executable, "-c", script], check=True)


def test_on_the_disk_before_it_has_its_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a result is flushed to the disk before its rename, and its folder afterwards.

    So a loss of power at any time does no harm.
    """
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(number: int) -> None:
        steps.append(Path(f"/proc/self/fd/{number}").readlink().name)
        fsync(number)

    def renamed(self: Path, target: Path) -> Path:
        steps.append(f"{self.name} to {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    built_once("kind", KEY, "making it", made_folder)
    *before, rename, last = steps
    assert set(before) == {"new", "part", "file", "other", f"{KEY}.sha256"}
    assert before[-1] == f"{KEY}.sha256"
    assert (rename, last) == (f"new to {KEY}", "kind")


def test_full_disk(root: Path) -> None:
    def fill(work: Path) -> Path:
        with open("/dev/full", "w") as file:
            file.write("x")
        return work

    with pytest.raises(BuildFolderError, match="no space left on device"):
        built_once("kind", KEY, "making it", fill)
    assert unfinished(root) == []


def test_read_only_but_there(root: Path) -> None:
    """Check that a built result can be used from a folder that cannot be written."""
    built_once("kind", KEY, "making it", made)
    if os.geteuid() == 0:
        # The root user may write everywhere. So the lock file is removed, and must not come back.
        (root / "kind" / f"{KEY}.lock").unlink()
    (root / "kind").chmod(0o555)
    assert built_once("kind", KEY, "making it", made).read_text() == "made"
    assert not (root / "kind" / f"{KEY}.lock").exists() or os.geteuid()
    (root / "kind").chmod(0o755)


def test_signs_of_life(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(notices, "INTERVAL", 0.01)
    with notices.sign_of_life("the work"):
        time.sleep(0.2)
    said = capsys.readouterr().err
    assert said.startswith("systola: the work: 0 s so far\n")
    assert said.count("\n") > 2
    time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Check that results are built in the user's cache if there is no checkout."""
    monkeypatch.delenv("SYSTOLA_BUILD", raising=False)
    monkeypatch.setattr(build, "SIM_DIRECTORY", tmp_path / "sim")
    monkeypatch.setenv("XDG_CACHE_HOME", "/a/cache")
    assert build.build_root() == Path("/a/cache/systola")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/a/home")
    assert build.build_root() == Path("/a/home/.cache/systola")
