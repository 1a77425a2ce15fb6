"""As much of systemd as a set-up asks for, on machines of tests that have none: `systemctl COMMAND [OPTION …] [UNIT]`.

It runs a unit as the unit says: as its user, with its environment files and nothing else in the environment, with its state
directory, and hears from it by sd_notify(3) when it is ready, and which process is the main one. Sandboxing, limits and
restarts are systemd's own to test. Every command is written down. It needs nothing but the standard library.
"""

from __future__ import annotations

import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

RUN = Path("/run/systemctl")
UNITS = Path("/etc/systemd/system")
PATIENCE = 60.0


class Unit:
    """A unit's file, and what is known of its processes."""

    def __init__(self, name: str) -> None:
        self.name = name.removesuffix(".service")
        self.notify, self.pid_file = RUN / f"{self.name}.notify", RUN / f"{self.name}.pid"
        self.ready, self.log = RUN / f"{self.name}.ready", RUN / f"{self.name}.log"
        self.lines: list[tuple[str, str]] = []
        file = UNITS / f"{self.name}.service"
        for line in file.read_text().splitlines() if file.exists() else ():
            key, equals, value = line.partition("=")
            if equals and not key.startswith("#"):
                self.lines.append((key, value))

    def all(self, key: str) -> list[str]:
        """Every value that a key has."""
        return [value for name, value in self.lines if name == key]

    def environment(self) -> dict[str, str]:
        """What its processes get, and nothing of ours."""
        found = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
            "NOTIFY_SOCKET": str(self.notify),
        }
        for file in self.all("EnvironmentFile"):
            for line in Path(file).read_text().splitlines():
                name, _, value = line.partition("=")
                found[name] = "".join(shlex.split(value))
        return found

    def spawn(self, command: str) -> subprocess.Popen[bytes]:
        """Start one of its commands; with `+` as root."""
        user = pwd.getpwnam("root" if command.startswith("+") else self.all("User")[0])
        with self.log.open("ab") as out:
            return subprocess.Popen(
                shlex.split(command.lstrip("+")),
                cwd="/",
                env=self.environment(),
                user=user.pw_uid,
                group=user.pw_gid,
                extra_groups=[],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def main_pid(self) -> int:
        """Its main process, if that lives; 0 otherwise."""
        pid = int(self.pid_file.read_text()) if self.pid_file.exists() else 0
        return pid if pid and _alive(pid) else 0

    def active(self) -> bool:
        """It has said that it is ready, and runs."""
        return self.ready.exists() and self.main_pid() != 0

    def start(self) -> None:
        """Start it, and hear what it says for as long as this machine runs."""
        self.stop()
        (state,) = self.all("StateDirectory")
        folder, user = Path("/var/lib", state), pwd.getpwnam(self.all("User")[0])
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, user.pw_uid, user.pw_gid)
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.unlink(missing_ok=True)
        heard.bind(str(self.notify))
        self.notify.chmod(0o777)
        if os.fork():
            return
        os.setsid()
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        self.pid_file.write_text(str(self.spawn(self.all("ExecStart")[0]).pid))
        while said := heard.recv(4096).decode():
            words = dict(line.partition("=")[::2] for line in said.splitlines())
            self.pid_file.write_text(words.get("MAINPID", self.pid_file.read_text()))
            if "READY" in words:
                self.ready.touch()

    def reload(self) -> int:
        """Run what it says; 1 if something fails."""
        return int(any(self.spawn(command).wait(PATIENCE) for command in self.all("ExecReload")))

    def stop(self) -> None:
        """End it, and wait."""
        pid = self.main_pid()
        for command in self.all("ExecStop") if pid else ():
            self.spawn(command).wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while pid and _alive(pid) and time.monotonic() < deadline:
            os.kill(pid, signal.SIGTERM)
            time.sleep(0.05)
        self.ready.unlink(missing_ok=True)
        self.pid_file.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main(arguments: list[str]) -> int:
    """Do what systemctl(1) would. What the caller has open, a lock say, is not for services."""
    os.closerange(3, 256)
    RUN.mkdir(exist_ok=True)
    RUN.chmod(0o755)
    with (RUN / "calls").open("a") as calls:
        calls.write(" ".join(arguments) + "\n")
    command, *rest = arguments
    names = [one for one in rest if not one.startswith("-") and one != "MainPID"]
    unit = Unit(names[0] if names else "")
    if command == "is-active":
        return 0 if unit.active() else 3
    if command == "show":
        print(unit.main_pid())
    elif not unit.lines:
        pass  # the machine's own: none is here
    elif command in ("start", "restart"):
        unit.start()
    elif command == "reload":
        return unit.reload()
    elif command == "stop":
        unit.stop()
    elif command not in ("daemon-reload", "enable"):
        sys.exit(f"no such command: {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
