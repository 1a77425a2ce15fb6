"""What is locked is installed, and nothing is missing: whatever else the package index has, or comes to have."""

from __future__ import annotations

import base64
import os
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from tests.check_lock import CHECKOUT, LOCKS, declared, follow, installed, read_lock
from tests.effort import ALL

INSTALL = CHECKOUT / "deploy" / "install.py"
BUILD = ("editables", "hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")
"""What builds gtm."""


@pytest.mark.drill
@pytest.mark.endurance
@pytest.mark.parametrize("name", LOCKS)
def test_each_line_of_a_lock_is_missed(name: str) -> None:
    """A lock with one line taken out, any line, is not closed, and the check names what is missing."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    lock = read_lock((CHECKOUT / name).read_text())
    roots = declared(project, LOCKS[name])
    assert follow(lock, roots)[1] == []
    lines = [(key, line) for key, found in lock.items() for line in found]
    for key, line in Random(name).sample(lines, len(lines) if ALL else 4):
        left = {**lock, key: [other for other in lock[key] if other is not line]}
        _, said = follow(left, roots)
        assert any(f"the lock has no {key}" in one for one in said), (key, said)


def test_what_requirements_with_extras_and_versions_want() -> None:
    """Extras of extras are followed, markers are read for each environment, and a version that is too old is named."""
    known = {
        "a": ("1", ["b[x]>=2", "w; sys_platform == 'win32'", "never; extra == 'other'"]),
        "b": ("2", ["c; extra == 'x'", "d; extra == 'y'"]),
        "c": ("1", ["b[y]"]),
    }
    lock = read_lock("a==1 \\\n    --hash=sha256:0\nb==2\nc==1\n")
    names, said = follow(lock, ["a"], known.get)
    assert names == {"a", "b", "c"}
    assert sorted(said) == [
        "a requires w; sys_platform == 'win32', and the lock has no w (for CPython 3.11 on win32, say)",
        "b requires d; extra == 'y', and the lock has no d (for CPython 3.11 on linux, say)",
    ]
    _, (old,) = follow(read_lock("a==1\nb==1\nw==1\n"), ["a"], known.get)
    assert old.startswith("a requires b[x]>=2, and the lock has b 1 ")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A package index on loopback, and a lock of what it has.

    It has each distribution of the development lock that is installed here, with the metadata of the real one but without
    code, except for what builds gtm; and newer releases of two that others ask for with an extra. The lock is the real one, with
    the hashes of these files.
    """
    folder = tmp_path_factory.mktemp("index")
    lock: list[str] = []
    for name, lines in read_lock((CHECKOUT / "requirements-dev.lock").read_text()).items():
        found = installed(name)
        line = next((line for line in lines if found and line.version == found[0]), None)
        if found and line:
            digest = _publish(folder, name, line.version, name in BUILD)
            lock.append(f"{name}=={line.version} --hash=sha256:{digest}")
        else:
            lock += [f"{line.requirement} --hash=sha256:{'0' * 64}" for line in lines]
    for name in ("coverage", "psycopg"):
        _publish(folder, name, "999.0")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        (folder / "requirements.txt").write_text("\n".join(lock))
        yield f"http://127.0.0.1:{server.server_port}/", folder / "requirements.txt"
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        """Tests have output enough."""


def _publish(folder: Path, name: str, version: str, code: bool = False) -> str:
    """Add a wheel to an index's folder (PEP 503, PEP 427), with the metadata of what is installed under that name.

    Args:
        folder: the index's.
        name: of a distribution that is installed here.
        version: of the wheel, whatever is installed.
        code: with its Python files, too?

    Returns:
        The file's SHA-256.
    """
    found = distribution(name)
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in found.requires or ()]
    lines += [f"Provides-Extra: {one}" for one in found.metadata.get_all("Provides-Extra") or ()]
    files = {
        f"{stem}.dist-info/METADATA": "\n".join(lines) + "\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    for path in (found.files or ()) if code else ():
        if path.suffix == ".py":
            files[str(path)] = path.read_text()
        elif path.name == "entry_points.txt":
            files[f"{stem}.dist-info/entry_points.txt"] = path.read_text()
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    (folder / name).mkdir(exist_ok=True)
    wheel = folder / name / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{stem}.dist-info/RECORD", f"{record}{stem}.dist-info/RECORD,,\n")
    return sha256(wheel.read_bytes()).hexdigest()


def _install(venv: Path, lock: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment |= {"PIP_NO_CACHE_DIR": "1", "PIP_CONFIG_FILE": os.devnull, **settings}
    return subprocess.run(
        [sys.executable, str(INSTALL), str(venv), str(lock)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.drill
def test_a_newer_release_on_the_index_changes_nothing(index: tuple[str, Path], tmp_path: Path) -> None:
    """Installed is what is locked, although the index has newer releases of what is asked for with an extra."""
    address, lock = index
    venv = tmp_path / "venv"
    done = _install(venv, lock, PIP_INDEX_URL=address, PIP_USER="1", PIP_TARGET=str(tmp_path / "elsewhere"))
    assert done.returncode == 0, done.stdout + done.stderr
    asked = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    found = subprocess.run([venv / "bin" / "python", "-c", asked], capture_output=True, text=True, check=True)
    locked = {line.split()[0] for line in lock.read_text().splitlines() if f"sha256:{'0' * 64}" not in line}
    assert {one.lower().replace("_", "-") for one in found.stdout.split()} >= locked
    assert "999.0" not in found.stdout
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "The virtual environment was not created successfully because ensurepip is not available.",
            "apt install python3-venv",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "the disk is full",
        ),
        ("ERROR: Could not install: [Errno 13] Permission denied: '/x/y'", "no right to write /x/y"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    idna==1 from http://i/idna:\n  Expected",
            "gave a file of idna==1 that is not the locked one. If the index is a mirror (https://index.test/simple)",
        ),
        (
            "WARNING: connection broken by 'ProxyError('No.')': /\nERROR: No matching distribution found for idna==1",
            "the proxy http://proxy.test does not lead to the package index",
        ),
        (
            "WARNING: connection broken by 'NewConnectionError('Name')': /\nERROR: No matching distribution found for idna==1",
            "cannot be reached: NewConnectionError",
        ),
        ("WARNING: connection broken by 'SSLError(CERTIFICATE_VERIFY_FAILED)'", "set PIP_CERT"),
        (
            "ERROR: HTTP error 401: 401 Client Error: Unauthorized for url: http://i/",
            "refuses: 401 Client Error: Unauthorized",
        ),
        ("WARNING: The repository located at i.test is not a trusted or secure host", "PIP_TRUSTED_HOST"),
        ("ERROR: No matching distribution found for idna==1", "does not have idna==1"),
        ("pytest-cov 7.1.0 requires coverage, which is not installed.", "the lock file lacks something"),
        ("Something else\nERROR: whatever it is.", "whatever it is"),
        ("", "no word of why"),
        (
            "ERROR: Exception:\nTraceback (most recent call last):\n  …\nAttributeError: no ImpImporter",
            "AttributeError: no ImpImp",
        ),
    ],
)
def test_causes_of_what_pip_says(said: str, words: str) -> None:
    """Each has a remedy, and no password of an index or a proxy is repeated."""
    environment = {
        "PIP_INDEX_URL": "https://user:secret@index.test/simple",
        "HTTPS_PROXY": "http://u:secret@proxy.test",
    }
    told = runpy.run_path(str(INSTALL))["cause"](said, environment)
    assert words in told
    assert "secret" not in told


@pytest.mark.drill
def test_an_installation_that_cannot_go_on_says_why(index: tuple[str, Path], tmp_path: Path) -> None:
    """One line with cause and remedy; the same command works once the cause is gone, in the environment that was begun."""
    address, lock = index
    venv, small = tmp_path / "venv", tmp_path / "small.txt"
    small.write_text("\n".join(line for line in lock.read_text().splitlines() if line.startswith(BUILD)))
    done = _install(venv, small, PIP_INDEX_URL="http://u:secret@127.0.0.1:1/", PIP_RETRIES="0")
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "Not installed: the package index (http://127.0.0.1:1/) cannot be reached: NewConn"
    ), line
    assert "secret" not in line + (tmp_path / "venv-install.log").read_text()
    done = _install(venv, small, PIP_INDEX_URL=address)
    assert "the lock file lacks something: gtm-service" in done.stderr
    assert (venv / "unfinished").exists()


@pytest.mark.drill
def test_an_interrupted_installation_is_begun_anew(index: tuple[str, Path], tmp_path: Path) -> None:
    """What was cut off in the middle leaves a mark, and goes: half a distribution would count as installed."""
    address, _ = index
    lock, venv = tmp_path / "none.txt", tmp_path / "venv"
    lock.write_text("")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("half")
    (venv / "unfinished").touch()
    _install(venv, lock, PIP_INDEX_URL=address)
    assert (venv / "bin" / "python").is_symlink()
