"""The modules for machines: what Terraform makes of them, and what that does on a machine, with real edges and controls."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import httpx
import pytest
import yaml

from gtm.documents.schema import PolicyDocument
from tests.api.conftest import Api, api
from tests.effort import ALL
from tests.patience import PATIENCE
from tests.ports import free_port
from tests.system import lone
from tests.system.harness import eventually
from tests.terraform.vm import PACKAGES, PYTHON, Machine, machine
from tests.tools import tool

__all__ = ["api"]
pytestmark = [pytest.mark.system, pytest.mark.drill]

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "deploy/terraform/modules"
TOKEN_FILE = "/etc/edge-token"
URL_FILE = "/etc/database-url"
FIRST_ADMIN = "/etc/first-admin-token"


def terraform(folder: Path, *arguments: str) -> str:
    """What Terraform prints, asked something that has to work."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    done = subprocess.run(
        [tool("terraform"), f"-chdir={folder}", *arguments],
        env={**environment, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def applied(folder: Path, modules: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Apply a configuration that uses modules, each with what it is given; their outputs.

    Args:
        folder: an empty one.
        modules: what each is given, by a name of its own; `source` is the module's.
    """
    names = ("user_data", "script", "unit", "environment")
    calls = {
        name: {**given, "source": os.path.relpath(MODULES / given["source"], folder.resolve())}
        for name, given in modules.items()
    }
    outputs = {
        name: {"value": {one: f"${{module.{name}.{one}}}" for one in names}, "sensitive": True}
        for name in modules
    }
    (folder / "main.tf.json").write_text(json.dumps({"module": calls, "output": outputs}))
    terraform(folder, "init", "-input=false")
    terraform(folder, "apply", "-input=false", "-auto-approve")
    return {name: one["value"] for name, one in json.loads(terraform(folder, "output", "-json")).items()}


@pytest.mark.parametrize("module", ["edge", "control"])
def test_terraform_agrees_with_the_module(module: str, tmp_path: Path) -> None:
    """It is written as `terraform fmt` would; it, its examples and its own tests, of what it refuses, are sound."""
    for part in ("machine", module):
        terraform(MODULES / part, "fmt", "-check", "-recursive")
        shutil.copytree(MODULES / part, tmp_path / part, ignore=shutil.ignore_patterns(".terraform"))
    for folder in (tmp_path / module, *sorted((tmp_path / module / "examples").iterdir())):
        terraform(folder, "init", "-input=false", "-backend=false")
        terraform(folder, "validate")
    assert "0 failed" in terraform(tmp_path / module, "test")


@pytest.mark.parametrize("module", ["edge", "control"])
def test_the_readme_lists_inputs_and_outputs(module: str) -> None:
    """All there are, in the order in which they are declared, and no others."""
    text = (MODULES / module / "README.md").read_text()
    for heading, file, kind in (("Inputs", "variables.tf", "variable"), ("Outputs", "outputs.tf", "output")):
        section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        declared = re.findall(rf'^{kind} "(\w+)"', (MODULES / module / file).read_text(), re.MULTILINE)
        assert listed == declared


EDGE = {
    "source": "edge",
    "control_url": "https://control.example.com",
    "package": {"version": "0.1.0"},
    "token_command": "printf '%s' \"it's\"",
}
CONTROL = {"source": "control", "package": {"version": "0.1.0"}, "database_url_file": "/run/url"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Outputs of the modules with little given, and with much."""
    return applied(
        tmp_path_factory.mktemp("written"),
        {
            "edge": EDGE,
            "control": CONTROL,
            "full_edge": {
                **EDGE,
                "name": "fra-1",
                "control_ca": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
                "geoip_db": {"url": "https://example.com/it's.mmdb", "sha256": "0" * 64},
                "geoip_overrides": "- {network: 10.0.0.0/8, country: DE}\n",
                "dns_cookie_secret": {"file": "/run/cookie"},
                "unit_settings": ["MemoryMax=2G"],
                "environment": {"GTM_LOG_LEVEL": "debug"},
                "region": "eu-central",
                "trusted_proxies": ["10.0.0.0/24"],
            },
            "given_control": {
                **{name: value for name, value in CONTROL.items() if name != "database_url_file"},
                "database_url": "postgresql://gtm:it-is-secret@db/gtm",
                "port": 443,
                "migrate": False,
            },
        },
    )


@pytest.mark.parametrize("name", ["edge", "control", "full_edge", "given_control"])
def test_user_data_is_the_script(written: dict[str, dict[str, str]], name: str) -> None:
    """cloud-init writes the very script, for root alone, and runs it; a shell can read it, and clouds take its size."""
    one = written[name]
    assert one["user_data"].startswith("#cloud-config\n")
    data = yaml.safe_load(one["user_data"])
    (file,) = data["write_files"]
    assert (file["content"], file["permissions"], file["owner"]) == (one["script"], "0700", "root:root")
    assert data["runcmd"] == [[file["path"]]]
    assert len(base64.b64encode(gzip.compress(one["user_data"].encode()))) < 16 * 1024
    done = subprocess.run(["sh", "-n"], input=one["script"], text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-"], input=one["script"], text=True, check=True)
    if shutil.which("cloud-init"):
        done = subprocess.run(
            ["cloud-init", "schema", "-c", "/dev/stdin"], input=one["user_data"], text=True, check=False
        )
        assert done.returncode == 0


@pytest.mark.parametrize("name", ["edge", "control", "full_edge", "given_control"])
def test_systemd_understands_the_unit(written: dict[str, dict[str, str]], name: str, tmp_path: Path) -> None:
    """It warns of nothing; and what it says of exposure stays low."""
    program = tool("systemd-analyze")
    service = "gtm-edge" if name.endswith("edge") else "gtm-control"
    file = tmp_path / f"{service}.service"
    # It asks whether programs are there: the machine's are not.
    file.write_text(written[name]["unit"].replace(f"/opt/gtm/{service[4:]}", "/bin/true #"))
    done = subprocess.run(
        [program, "verify", "--recursive-errors=no", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    rated = subprocess.run(
        [program, "security", "--offline=true", "--threshold=25", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout + rated.stderr


def test_secrets_are_where_they_were_said_to_be(written: dict[str, dict[str, str]]) -> None:
    """A secret that is given is in the script alone; what everybody on the machine may read has none."""
    given = written["given_control"]
    assert "it-is-secret" in given["script"]
    assert "it-is-secret" not in json.dumps([given["unit"], given["environment"]])
    assert "CAP_NET_BIND_SERVICE" in given["unit"]
    assert "--no-prepare" in given["unit"]
    assert "MemoryMax=2G" in written["full_edge"]["unit"]


def wheel(folder: Path) -> Path:
    """Gtm as it is here."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def package(file: Path) -> dict[str, str]:
    """A wheel as the modules take it."""
    return {"url": f"file://{file}", "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def another(file: Path) -> Path:
    """The same wheel with a comment, that is another file."""
    changed = file.with_name("other") / file.name
    changed.parent.mkdir()
    shutil.copy(file, changed)
    with zipfile.ZipFile(changed, "a") as archive:
        archive.comment = b"another"
    return changed


@dataclass
class Site:
    """A machine, and what all set-ups on it are given."""

    machine: Machine
    folder: Path
    wheel: Path
    installs: dict[str, Any]

    def files(self) -> str:
        """Every file that the set-ups made, its mode, owner, time and size."""
        find = ["find", "/etc/gtm", "/etc/systemd/system", "/opt/gtm", "-path", "*/venvs/*", "-prune"]
        made = self.machine.must(*find, "-o", "-type", "f", "-printf", "%p %M %u %T@ %s\\n")
        return made + self.machine.must("sh", "-c", "readlink /opt/gtm/*/current")

    def pid(self, service: str) -> int:
        """A service's main process."""
        return int(self.machine.must("systemctl", "show", "--property", "MainPID", "--value", service))


def quick(folder: Path) -> str:
    """A Python that makes an environment with the pip that is here, which takes a tenth of the time of another one."""
    file, pip = folder / "python", PACKAGES / "pip"
    file.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "-m venv" ] || exec {PYTHON} "$@"\n'
        f'set -e\n{PYTHON} -m venv --without-pip "$3"\ncp -r {pip} "$3"/lib/python3.*/site-packages\n'
    )
    file.chmod(0o755)
    return str(file)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A machine and a wheel; pip installs nothing else, since what gtm needs is installed here."""
    tool("terraform")
    folder = tmp_path_factory.mktemp("machine")
    (folder / "vm").mkdir()
    with machine(folder / "vm") as made:
        built = wheel(folder)
        installs = {
            "package": package(built),
            "python": str(PYTHON) if ALL else quick(folder),
            "pip_arguments": ["--no-deps", "--no-index"],
            "start_timeout": int(PATIENCE),
        }
        yield Site(made, folder, built, installs)


def address(port: int) -> list[str]:
    """What DNS answers."""
    reply = dns.query.udp(dns.message.make_query(lone.NAME, "A"), "127.0.0.1", 1.0, port)
    return [item.to_text() for rrset in reply.answer for item in rrset]


def region_is_up(control: Api, port: int) -> None:
    """A policy with one region that listens, and nothing else."""
    policy = PolicyDocument.of(lone.policy(port)).model_dump(mode="json", exclude_defaults=True)
    response = control.operator.post("/v1/policy:apply", json={"policy": policy})
    assert response.status_code == 200, response.text


def edge_token(control: Api) -> str:
    """A token for the edge `fra-1`."""
    made = control.admin.post("/v1/tokens", json={"name": "fra-1", "role": "edge"})
    assert made.status_code == 201, made.text
    text: str = made.json()["token"]
    return text


@pytest.mark.drill
def test_an_edge_on_a_machine(site: Site, api: Api, tmp_path: Path) -> None:
    """It is set up, left alone by a second run and by what fails, upgraded in place, and answers without control."""
    vm, dns_port, http_port = site.machine, free_port(), free_port()
    with lone.listening() as region:
        region_is_up(api, region)
        vm.write(TOKEN_FILE, edge_token(api) + "\n")
        given = {
            **site.installs,
            "source": "edge",
            "control_url": api.url,
            "token_file": TOKEN_FILE,
            "dns_addresses": ["127.0.0.1"],
            "dns_port": dns_port,
            "http_addresses": ["127.0.0.1"],
            "http_port": http_port,
            "dns_cookie_secret": {"command": "printf '%032d' 7"},
            "geoip_db": package(ROOT / "gtm/geoip/data/gtm-location.mmdb"),
            "environment": {"PYTHONPATH": str(PACKAGES), "GTM_PROBE_ALLOW": "127.0.0.0/8"},
        }
        newer, wrong = package(another(site.wheel)), {**given["environment"], "GTM_LOG_LEVEL": "loud"}
        scripts = {
            name: one["script"]
            for name, one in applied(
                tmp_path,
                {
                    "first": given,
                    "broken": {**given, "package": {**given["package"], "sha256": "0" * 64}},
                    "wrong": {**given, "package": newer, "environment": wrong, "start_timeout": 1},
                    "next": {**given, "package": newer},
                },
            ).items()
        }

        # Of what the wheel's lock asks for, nothing is installed, and nothing to be had.
        lacking = vm.run("env", "-u", "PYTHONPATH", "sh", "-s", text=scripts["first"])
        assert lacking.returncode == 1
        assert "could not install gtm-service" in lacking.stdout, lacking.stdout
        first = vm.run("sh", "-s", text=scripts["first"])
        assert first.returncode == 0, first.stdout
        assert first.stdout == "gtm-edge: started\n"
        eventually(lambda: address(dns_port) == [lone.ADDRESS], "it answers")
        assert vm.calls() == ["daemon-reload", "enable --quiet gtm-edge", "start --no-block gtm-edge"]
        pid = site.pid("gtm-edge")
        assert vm.must("ps", "-o", "user=", "-p", str(pid)).strip() == "gtm"
        secrets = ("/etc/gtm/edge.secret.env", "/etc/gtm/edge.dns-cookie-secret", "/var/lib/gtm-edge")
        assert vm.must("stat", "-c", "%a %U", *secrets) == "600 root\n600 gtm\n700 gtm\n"

        before = site.files()
        for name, code, said, called in (
            ("first", 0, "nothing to change", ()),
            ("broken", 1, "could not install", ()),
            ("wrong", 1, "did not take over within 1 s", ("reload gtm-edge",)),
        ):
            again = vm.run("sh", "-s", text=scripts[name])
            assert again.returncode == code, again.stdout
            assert said in again.stdout
            calls = [line for line in vm.calls() if not line.startswith(("daemon-reload", "enable"))]
            assert calls == [*called]
            assert (site.pid("gtm-edge"), address(dns_port)) == (pid, [lone.ADDRESS])
            assert site.files() == before
            assert len(vm.must("ls", "/opt/gtm/edge/venvs").split()) == (2 if name == "wrong" else 1)

        upgraded = vm.run("sh", "-s", text=scripts["next"])
        assert upgraded.returncode == 0, upgraded.stdout
        assert "runs with what is new" in upgraded.stdout
        assert site.pid("gtm-edge") != pid
        assert len(vm.must("ls", "/opt/gtm/edge/venvs").split()) == 2
        eventually(
            lambda: httpx.get(f"http://127.0.0.1:{http_port}/readyz").status_code == 200, "it is ready"
        )

        api.server.__exit__()
        vm.must("systemctl", "restart", "gtm-edge")
        eventually(lambda: address(dns_port) == [lone.ADDRESS], "it answers without control")
        vm.must("systemctl", "stop", "gtm-edge")


NASTY = (
    "it's",
    'a "b" c',
    "$(false) `false` $HOME",
    "\\n \\\\",
    "${x} %{y}",
    " # = ; & | < > * ~ ! ",
    "ünï\u00a0 \t é",
    "END",
)


def literal(text: str) -> str:
    """A text that Terraform takes as it is."""
    return text.replace("${", "$${").replace("%{", "%%{")


def test_texts_arrive_as_they_were_given(site: Site, tmp_path: Path) -> None:
    """Through Terraform, YAML, a shell and files: commands and texts of files with anything in them, settings but for quotes."""
    overrides = "".join(f"# {text}\n" for text in NASTY) + "[]\n"
    settings = {f"X{number}": text for number, text in enumerate(NASTY) if "'" not in text}
    secret = "".join(text for text in NASTY if "'" not in text)
    given = {
        **EDGE,
        "geoip_overrides": literal(overrides),
        "environment": {name: literal(text) for name, text in settings.items()},
        "token_command": literal(f"printf %s {shlex.quote(secret)}"),
    }
    user_data = applied(tmp_path, {"edge": given})["edge"]["user_data"]
    script = yaml.safe_load(user_data)["write_files"][0]["content"]
    vm = site.machine
    vm.run("useradd", "--system", "gtm")
    done = vm.run("sh", "-s", text=script.removesuffix("main\n") + 'kept=\nfiles\n"$FETCH"\n')
    assert (done.returncode, done.stdout) == (0, "")
    assert vm.must("cat", "/etc/gtm/edge-overrides.yaml") == overrides
    read = "set -a; . /etc/gtm/edge.env; . /etc/gtm/edge.secret.env; exec env -0"
    found = dict(line.partition("=")[::2] for line in vm.must("sh", "-c", read).split("\0"))
    assert {**settings, "GTM_TOKEN": secret}.items() <= found.items()
    vm.must("sh", "-c", "rm -r /etc/gtm /opt/gtm /etc/systemd/system/gtm-edge.service")


def test_an_address_that_is_taken(site: Site, tmp_path: Path) -> None:
    """Before anything is fetched the set-up says which, and what to do about systemd-resolved, if that has port 53."""
    given = {**EDGE, **site.installs, "dns_addresses": ["127.0.0.53"], "http_port": free_port()}
    made = applied(tmp_path, {"refuse": given, "room": {**given, "systemd_resolved": "make-room"}})
    vm, stub = site.machine, "/run/systemd/resolve/stub-resolv.conf"
    vm.must("ln", "-sfn", stub, "/etc/resolv.conf")
    with socket.create_server(("127.0.0.53", 53)), vm.stub_resolver():
        vm.calls()
        refused = vm.run("sh", "-s", text=made["refuse"]["script"])
        assert refused.returncode == 1
        assert "tcp/127.0.0.53:53 is taken" in refused.stdout
        assert 'systemd_resolved = "make-room"' in refused.stdout
        assert (vm.calls(), vm.must("readlink", "/etc/resolv.conf").strip()) == ([], stub)
        vm.run("sh", "-s", text=made["room"]["script"])
        assert vm.calls() == ["restart systemd-resolved"]
        assert "DNSStubListener=no" in vm.must("cat", "/etc/systemd/resolved.conf.d/gtm.conf")
        assert vm.must("readlink", "/etc/resolv.conf") == "/run/systemd/resolve/resolv.conf\n"


@pytest.mark.drill
def test_control_on_a_machine(site: Site, database_url: str, tmp_path: Path) -> None:
    """The first admin token is told to a file alone until it can be handed over, and there is no second one."""
    vm, port = site.machine, free_port()
    vm.write(URL_FILE, database_url + "\n")
    store = {"command": "test -e /etc/store && cat > /etc/store/token"}
    given = {
        **site.installs,
        "source": "control",
        "database_url_file": URL_FILE,
        "port": port,
        "admin_token": {"file": FIRST_ADMIN, "owner": "ann@example.com", **store},
        "environment": {"PYTHONPATH": str(PACKAGES)},
    }
    script = applied(tmp_path, {"control": given})["control"]["script"]
    first = vm.run("sh", "-s", text=script)
    assert first.returncode == 1, first.stdout
    assert f"gtm-control: the first admin token is in {FIRST_ADMIN}\n" in first.stdout
    assert "gtm-control: started\n" in first.stdout
    assert "control runs, but admin_token.command failed" in first.stdout
    token = vm.must("cat", FIRST_ADMIN).strip()
    assert vm.must("stat", "-c", "%a %U", FIRST_ADMIN) == "600 root\n"
    journal = vm.must("cat", "/run/systemctl/gtm-control.log")
    assert token not in first.stdout + journal
    assert "first admin token" not in journal
    asked = httpx.get(f"http://127.0.0.1:{port}/v1/tokens", headers={"Authorization": f"Bearer {token}"})
    assert [(one["role"], one["owner"]) for one in asked.json()["items"]] == [("admin", "ann@example.com")]

    before = site.files()
    vm.must("systemctl", "stop", "gtm-control")
    vm.must("mkdir", "/etc/store")
    again = vm.run("sh", "-s", text=script)
    assert again.returncode == 0, again.stdout
    handed = "gtm-control: the first admin token was handed to admin_token.command\n"
    assert again.stdout == f"gtm-control: started\n{handed}"
    assert vm.must("cat", "/etc/store/token").strip() == token
    assert vm.run("test", "-e", FIRST_ADMIN).returncode == 1
    assert site.files() == before
    vm.must("systemctl", "stop", "gtm-control")
