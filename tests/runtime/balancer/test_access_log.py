"""The access log's file, as docs/balancer.md ("Access log") says it: whole lines, each counted, whatever becomes of file, directory and disk."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import resource
import signal
import stat
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count as numbers
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.config import AccessLogDocument
from gtm.runtime.balancer import access_log
from gtm.runtime.balancer.access_log import AccessLog, LogFile
from tests import uvloops
from tests.effort import examples
from tests.patience import PATIENCE

MOST_LINES, MOST_BYTES = 10_000, 4 * 2**20
"""By the page."""


# --- the file ---


def _line(number: int, size: int = 0) -> bytes:
    return b'{"n":%d,"x":"%b"}\n' % (number, b"x" * size)


def _read(*files: Path) -> list[int]:
    """The numbers in files, each line whole."""
    text = b"".join(file.read_bytes() for file in files)
    assert not text or text.endswith(b"\n")
    return [json.loads(line)["n"] for line in text.splitlines()]


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 30)),
        st.tuples(st.just("write"), st.sampled_from([999, 1000, 1001, 2500])),
        st.tuples(
            st.sampled_from(
                ["move", "move and create", "remove", "truncate copy", "no directory", "directory", "another"]
            ),
            st.just(0),
        ),
    ),
    max_size=12,
)


def _befalls(act: str, path: Path, hidden: Path, model: dict[Path, list[int]]) -> None:
    """What others do to the file, and what is in which after it."""
    folder = path.parent
    if act == "no directory" and folder.exists():
        folder.rename(hidden)
    elif act == "directory" and not folder.exists():
        hidden.rename(folder)
    elif not path.exists():
        return
    elif act.startswith("move"):
        other = folder / f"access.log.{len(model)}.{len(list(folder.iterdir()))}"
        path.rename(other)
        model[other] = model.pop(path)
        if act == "move and create":
            path.touch()
            model[path] = []
    elif act == "remove":
        path.unlink()
        del model[path]
    elif act == "truncate copy":
        os.truncate(path, 0)
        model[path] = []


@settings(max_examples=examples(400, 80), deadline=None)
@given(ACTS)
def test_no_line_is_lost_however_files_are_moved(acts: list[tuple[str, int]]) -> None:
    """The model: all lines that the writer says are written, in order, in the file that the path named when they were."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "logs"
        folder.mkdir()
        path, hidden = folder / "access.log", Path(name) / "hidden"
        ours, theirs = LogFile(path), LogFile(path)
        fresh = numbers()
        model: dict[Path, list[int]] = {path: []}
        waiting: list[int] = []
        for act, some in [*acts, ("directory", 0), ("write", 1)]:
            there = folder.exists()
            if act in ("write", "another"):
                file = ours if act == "write" else theirs
                batch = waiting if act == "write" else [next(fresh)]
                batch.extend(next(fresh) for _ in range(some))
                count, error = file.append([_line(one) for one in batch])
                assert (error is None) == there
                assert count == (len(batch) if there else 0)
                if there:
                    model.setdefault(path, []).extend(batch)
                    waiting = [] if act == "write" else waiting
            else:
                _befalls(act, path, hidden, model)
        for file, wanted in model.items():
            assert (_read(file) if file.exists() else []) == wanted
        for one in (ours, theirs):
            one.close()


def test_a_file_is_made_for_its_owner_and_group(tmp_path: Path) -> None:
    """0640; one that is there stays as it is."""
    path = tmp_path / "access.log"
    before = os.umask(0)
    try:
        file = LogFile(path)
        assert file.append([_line(1)]) == (1, None)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    assert file.append([_line(2)]) == (1, None)
    file.close()
    file = LogFile(path)
    assert file.append([_line(3)]) == (1, None)
    file.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert _read(path) == [1, 2, 3]


@contextmanager
def _limit(size: int) -> Iterator[None]:
    """No file of this process may be larger: the kernel writes a part, then refuses, as with a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@settings(max_examples=examples(200, 40), deadline=None)
@given(st.integers(1, 4000), st.integers(1, 60), st.integers(0, 50))
def test_a_disk_that_is_full_costs_no_line(size: int, lines: int, each: int) -> None:
    """What is in the file is counted; what was cut is written again whole, behind the part, which is a line of its own."""
    with TemporaryDirectory() as name:
        path = Path(name) / "access.log"
        file = LogFile(path)
        wanted = [_line(number, each) for number in range(lines)]
        whole = b"".join(wanted)
        with _limit(size):
            done, error = file.append(wanted)
            again, still = file.append(wanted[done:])
        assert again == 0
        assert done == whole[:size].count(b"\n")
        assert (error or still) is not None or done == lines
        cut = whole[:size]
        assert path.read_bytes() == cut
        count, error = file.append(wanted[done:])
        assert (count, error) == (lines - done, None)
        file.close()
        found = path.read_bytes()
        part = cut.rpartition(b"\n")[2]
        assert found == cut + (b"\n" if part and count else b"") + b"".join(wanted[done:])


def test_a_pipe_that_nobody_reads_keeps_nobody(tmp_path: Path) -> None:
    """It takes what it holds, in whole lines; what it does not take stays, and is written later."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    file = LogFile(path)
    _, error = file.append([_line(0)])
    assert error is not None  # without a reader
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 8192)
    lines = [_line(number, 900) for number in range(20)]
    done, error = file.append(lines)
    assert error is None
    assert 4 <= done < 20
    first = os.read(reader, 65536)
    assert first == b"".join(lines[:done])
    more, error = file.append(lines[done:])
    assert (error, more >= 4) == (None, True)
    os.close(reader)
    file.close()


def test_a_part_of_a_line_stays_in_the_file_that_was_full(tmp_path: Path) -> None:
    """The next one begins with a line."""
    path = tmp_path / "access.log"
    file = LogFile(path)
    with _limit(len(_line(1)) + 5):
        assert file.append([_line(1), _line(2)])[0] == 1
    path.rename(tmp_path / "old.log")
    assert file.append([_line(2)]) == (1, None)
    file.close()
    assert path.read_bytes() == _line(2)


def test_standard_output_that_nobody_reads_keeps_nobody() -> None:
    """It is not gtm's to make it one that does not block: what does not go in without waiting stays."""
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 8192)
    lines = [_line(number, 900) for number in range(20)]
    done, error = LogFile(None, writer).append(lines)
    assert error is None
    assert 4 <= done < 20
    assert os.read(reader, 65536) == b"".join(lines[:done])
    os.close(reader)
    assert isinstance(LogFile(None, writer).append(lines)[1], BrokenPipeError)
    os.close(writer)


# --- the log ---


def _nobody(*_: object) -> None:
    return None


def _exchange(number: int, size: int = 0) -> Any:
    head = SimpleNamespace(method=b"GET", path=b"/%d" % number + b"x" * size, seen={}, lines=[], written=None)
    parts = ("status", "waited", "received", "returned", "first_byte", "began")
    return SimpleNamespace(
        head=head,
        refusal=None,
        facts=SimpleNamespace(model=None),
        hedge=None,
        verdict=None,
        span=None,
        client=SimpleNamespace(peer=None),
        **dict.fromkeys(parts, 0),
    )


def _tell(log: AccessLog, number: int, size: int = 0) -> None:
    assert log.lines is not None
    log.lines.ended(cast("Any", _exchange(number, size)), None, "answered", 0.0)


def _numbers(file: Path) -> list[int]:
    return [int(json.loads(line)["path"].strip("/x")) for line in file.read_text().splitlines()]


async def _until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what holds is many things
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _log(folder: Path, path: str, say_every: float = access_log.SAY_EVERY) -> AsyncIterator[AccessLog]:
    log = AccessLog(folder, _nobody, say_every)
    log.configure(AccessLogDocument(path=path))
    try:
        yield log
    finally:
        await log.close()
    assert not log.collected
    assert not log.size


def test_what_does_not_fit_is_dropped_and_counted_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its directory, 10,000 lines wait; with it, they are written, and what comes then is too."""

    async def main() -> None:
        async with _log(tmp_path, "logs/access.log") as log:
            for number in range(MOST_LINES + 50):
                _tell(log, number)
                if number % 1000 == 0:
                    await asyncio.sleep(0)
            assert (log.written, log.dropped) == (0, 50)
            await _until(lambda: bool(caplog.records))
            await asyncio.sleep(3 * access_log.EVERY)
            (tmp_path / "logs").mkdir()
            await _until(lambda: log.written == MOST_LINES)
            _tell(log, MOST_LINES + 50)
        assert (log.written, log.dropped) == (MOST_LINES + 1, 50)

    with caplog.at_level(logging.INFO):
        uvloops.run(main())
    said, again = (record.getMessage() for record in caplog.records)
    assert f"`{tmp_path}/logs/access.log`: No such file or directory" in said
    assert "written again" in again
    assert "50" in again
    assert _numbers(tmp_path / "logs/access.log") == [*range(MOST_LINES), MOST_LINES + 50]


def test_what_waits_is_bounded_in_bytes(tmp_path: Path) -> None:
    """4 MiB of long lines; those that are being written count."""

    async def main() -> None:
        log = AccessLog(tmp_path, _nobody)
        log.configure(AccessLogDocument(path="none/access.log"))
        for number in range(6000):
            _tell(log, number, 900)
            if number % 500 == 0:
                await asyncio.sleep(0.001)
        held = sum(map(len, log.collected))
        assert MOST_BYTES - 1100 < held == log.size <= MOST_BYTES
        assert log.dropped == 6000 - len(log.collected)
        await log.close()
        assert log.dropped == 6000
        assert not log.written

    uvloops.run(main())


def test_a_full_device(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said once; each line is counted."""

    async def main() -> None:
        async with _log(tmp_path, "/dev/full") as log:
            for number in range(20):
                _tell(log, number)
                await asyncio.sleep(0.05)
        assert (log.written, log.dropped) == (0, 20)

    uvloops.run(main())
    first, last = (record.getMessage() for record in caplog.records)
    assert "No space left on device" in first
    assert "20" in last


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_lines_go_where_they_were_made_for(tmp_path: Path, pause: float) -> None:
    """Another file, in which nobody's network stands, gets none of the lines that were made before."""

    async def main() -> None:
        async with _log(tmp_path, "a.log") as log:
            _tell(log, 0)
            await _until(lambda: log.written == 1)
            _tell(log, 1)
            log.configure(AccessLogDocument(path="b.log", clients=cast("Any", "none")))
            _tell(log, 2)
            await asyncio.sleep(pause)
        assert (_numbers(tmp_path / "a.log"), _numbers(tmp_path / "b.log")) == ([0, 1], [2])

    uvloops.run(main())


@settings(max_examples=examples(60, 12), deadline=None)
@given(st.lists(st.sampled_from(["tell", "move", "other", "off", "wait", "clients"]), max_size=14))
def test_each_line_is_counted_once_and_all_are_written_at_the_end(acts: list[str]) -> None:
    """Whatever is configured in between, and wherever files go: what was told while it was on is written, once."""

    async def main() -> None:
        with TemporaryDirectory() as name:
            folder = Path(name)
            log = AccessLog(folder, _nobody)
            paths = ["a.log", "b.log"]
            document = AccessLogDocument(path=paths[0])
            log.configure(document)
            fresh, moved = numbers(), numbers()
            told: list[int] = []
            for act in acts:
                if act == "tell" and log.lines is not None:
                    for _ in range(5):
                        told.append(next(fresh))
                        _tell(log, told[-1])
                elif act == "move" and (folder / document.path).exists():
                    (folder / document.path).rename(folder / f"{next(moved)}.old")
                elif act == "other":
                    document = AccessLogDocument(path=paths[document.path == paths[0]])
                    log.configure(document)
                elif act == "clients":
                    document = AccessLogDocument(path=document.path, clients=cast("Any", "none"))
                    log.configure(document)
                elif act == "off":
                    log.configure(None)
                    assert log.lines is None
                elif act == "wait":
                    await _until(lambda: not log.collected)
            await log.close()
            found = Counter(n for file in _files(folder) for n in _numbers(file))
            assert found == Counter(told)
            assert (log.written, log.dropped) == (len(told), 0)
            assert log.file is not None
            assert not log.file.is_open

    uvloops.run(main())


def test_turned_off_it_lets_go_of_the_file(tmp_path: Path) -> None:
    """Once what was collected is written: who removes it has the room."""

    async def main() -> None:
        async with _log(tmp_path, "access.log") as log:
            _tell(log, 1)
            log.configure(None)
            file = log.file
            assert file is not None
            await _until(lambda: log.written == 1 and not file.is_open)
            log.configure(AccessLogDocument(path="access.log"))
            _tell(log, 2)
        assert _numbers(tmp_path / "access.log") == [1, 2]

    uvloops.run(main())


def test_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`-`: and nothing of it is closed."""

    async def main() -> None:
        async with _log(tmp_path, "-") as log:
            _tell(log, 7)

    uvloops.run(main())
    assert json.loads(capfd.readouterr().out)["path"] == "/7"
    os.fstat(1)


def test_the_loop_does_not_wait_for_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a disk hangs, requests go on, and what is being written still counts as held."""

    async def main() -> None:
        loop, hangs = asyncio.get_running_loop(), asyncio.Event()
        go = threading.Event()
        append = LogFile.append

        def slow(self: LogFile, lines: Any) -> Any:
            if lines:
                loop.call_soon_threadsafe(hangs.set)
                go.wait(20)
            return append(self, lines)

        monkeypatch.setattr(LogFile, "append", slow)
        async with _log(tmp_path, "access.log") as log:
            for number in range(MOST_LINES):
                _tell(log, number)
            await hangs.wait()
            _tell(log, MOST_LINES)
            assert log.dropped == 1
            go.set()
        assert log.written == MOST_LINES

    uvloops.run(main())


def test_at_the_end_a_slow_reader_is_waited_for(tmp_path: Path) -> None:
    """As long as it reads: it gets all."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    got: list[bytes] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with _log(tmp_path, "pipe") as log:
            for number in range(100):
                _tell(log, number, 200)
            loop.call_later(0.5, loop.add_reader, reader, lambda: got.append(os.read(reader, 2048)))
        loop.remove_reader(reader)
        assert (log.written, log.dropped) == (100, 0)

    uvloops.run(main())
    while part := os.read(reader, 65536):
        got.append(part)
    os.close(reader)
    assert b"".join(got).count(b"\n") == 100


@pytest.mark.parametrize(("every", "said"), [(access_log.SAY_EVERY, 1), (0.0, 3)])
def test_what_comes_and_goes_is_said_once_a_minute(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    every: float,
    said: int,
) -> None:
    """Not at each look, nor each time."""

    async def main() -> None:
        async with _log(tmp_path, "logs/access.log", say_every=every) as log:
            await _until(lambda: log.failing)
            for number in range(3):
                (tmp_path / "logs").mkdir()
                _tell(log, number)
                await _until(lambda: not log.failing and not log.collected)
                (tmp_path / "logs").rename(tmp_path / f"old{number}")
                if number < 2:
                    _tell(log, number)
                    await _until(lambda: log.failing)
                    await asyncio.sleep(2 * access_log.EVERY)

    uvloops.run(main())
    assert sum("cannot be written" in record.getMessage() for record in caplog.records) == said
