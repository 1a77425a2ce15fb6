"""The name servers that gtm is measured beside, configured to give the same answers as far as they can.

All read the client subnet. gdnsd has every network in its map and weighs regions as gtm's plan does; PowerDNS's geoip
backend and Knot's geoip module read the network's set of clients from a location database written for the purpose.
Knot cannot weigh answers by place, so there each network gets its first region.
"""

from __future__ import annotations

import getpass
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from bench_tools import absent, find
from dns_world import ZONE, Answers
from mmdb_writer import MMDBWriter
from netaddr import IPSet

BENCH = Path(__file__).parent
_SOA = f"ns1.{ZONE}. hostmaster.{ZONE}. 1 7200 1800 259200 60"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a server is set up for: a folder of its own, its port, what it answers, and whether it signs."""

    folder: Path
    port: int
    answers: Answers
    database: Path
    signed: bool


Command = list[str]


@dataclass(frozen=True, slots=True)
class Peer:
    """A server: programs and libraries (below /usr/lib) that it needs, how it is set up, and what it can.

    `signs`: answers that depend on the client, as it gives them. `answers`: it is a name server and no echo.
    """

    needs: tuple[str, ...]
    command: Callable[[Setting], Command]
    signs: bool = False
    answers: bool = True

    def missing(self) -> list[str]:
        """Which of its files or programs are not installed."""
        return [name for name in self.needs if absent(name)]


def write_database(path: Path, answers: Answers) -> None:
    """A location database that names each network's set of clients as its country."""
    writer = MMDBWriter(ip_version=4, database_type="GeoLite2-City", description="gtm benchmark")
    by_cell: dict[int, list[str]] = {}
    for net, cell in answers.cells.items():
        by_cell.setdefault(cell, []).append(_network(net))
    for cell, nets in by_cell.items():
        writer.insert_network(IPSet(nets), {"country": {"iso_code": f"c{cell}"}})
    writer.to_db_file(str(path))


def _network(net: int) -> str:
    return f"{IPv4Address(net << 8)}/24"


def _zone_file(folder: Path, lines: list[str]) -> Path:
    path = folder / ZONE
    path.write_text(
        f"$ORIGIN {ZONE}.\n@ 300 IN SOA {_SOA}\n@ 300 IN NS ns1\nns1 300 IN A 192.0.2.53\n"
        + "\n".join(lines)
        + "\n"
    )
    return path


def _label(host: str) -> str:
    return host.removesuffix(f".{ZONE}")


def gdnsd(setting: Setting) -> Command:
    """A map of networks for each family, and a weighted resource for each set of clients that a plan splits."""
    folder, answers = setting.folder, setting.answers
    for name in ("zones", "geoip", "run", "state"):
        (folder / name).mkdir()
    cells = sorted(set(answers.cells.values()))
    everywhere = ", ".join(f"c{cell}" for cell in cells)
    networks = "".join(f"{_network(net)} => [c{cell}]\n" for net, cell in answers.cells.items())
    (folder / "geoip" / "nets").write_text(networks)
    weighted, resources = [], []
    for family in answers.families:
        targets = []
        for cell in cells:
            choices = answers.by_cell[family, cell]
            if len(choices) == 1:
                targets.append(f"c{cell} => {choices[0][0]}")
                continue
            members = ", ".join(f"m{n} => [{address}, {part}]" for n, (address, part) in enumerate(choices))
            weighted.append(f"{family}c{cell} => {{ service_types => up, multi => false, {members} }}")
            targets.append(f"c{cell} => %weighted!{family}c{cell}")
        resources.append(
            f"{family} => {{ map => nets, service_types => up, dcmap => {{ {', '.join(targets)} }} }}"
        )
    plugins = f"weighted => {{ {', '.join(weighted)} }}, " if weighted else ""
    (folder / "config").write_text(
        f"options => {{ listen => {{ 127.0.0.1:{setting.port} => {{ udp_threads = 1, tcp_threads = 1 }} }}, "
        f"run_dir = {folder}/run, state_dir = {folder}/state }}\n"
        f"plugins => {{ {plugins}geoip => {{ maps => {{ nets => {{ datacenters => [{everywhere}], "
        f"nets => nets }} }}, resources => {{ {', '.join(resources)} }} }} }}\n"
    )
    zone = _zone_file(
        folder / "zones",
        [f"{_label(host)} {answers.ttl} DYNA geoip!{family}" for host, family in answers.hostnames.items()],
    )
    zone.write_text(zone.read_text().replace(" IN ", " "))
    return [program("gdnsd"), "-c", str(folder), "start"]


def powerdns_geoip(setting: Setting) -> Command:
    """The geoip backend: a service name for each host, a record name for each family and set of clients."""
    folder, answers = setting.folder, setting.answers
    lines = [
        "domains:",
        f"- domain: {ZONE}",
        f"  ttl: {answers.ttl}",
        "  records:",
        f"    {ZONE}:",
        f"      - soa: {_SOA}",
        f"      - ns: ns1.{ZONE}",
    ]
    for (family, cell), choices in answers.by_cell.items():
        lines.append(f"    c{cell}.{family}.{ZONE}:")
        for address, part in choices:
            weight = f", weight: {part}" if len(choices) > 1 else ""
            lines.append(f"      - a: {{content: {address}{weight}}}")
    lines.append("  services:")
    lines += [f"    {host}: '%co.{family}.{ZONE}'" for host, family in answers.hostnames.items()]
    (folder / "zones.yaml").write_text("\n".join(lines) + "\n")
    extra = [
        "launch=geoip",
        f"geoip-zones-file={folder}/zones.yaml",
        f"geoip-database-files={setting.database}",
    ]
    if setting.signed:
        (folder / "keys").mkdir()
        extra.append(f"geoip-dnssec-keydir={folder}/keys")
    command = _powerdns(setting, extra)
    if setting.signed:
        for role in ("ksk", "zsk"):
            _run("pdnsutil", f"--config-dir={folder}", "add-zone-key", ZONE, role, "active", "ecdsa256")
    return command


def powerdns_lua(setting: Setting) -> Command:
    """Lua records that look the client subnet up in a table, kept between queries, and pick by weight."""
    folder, answers = setting.folder, setting.answers
    lines = ["cells = {"]
    lines += [f'["{IPv4Address(net << 8)}"]={cell},' for net, cell in answers.cells.items()]
    lines.append("}\nanswers = {")
    for family in answers.families:
        lines.append(f"{family} = {{")
        for cell in sorted(set(answers.cells.values())):
            choices = answers.by_cell[family, cell]
            parts = ",".join(f'{{{part},"{address}"}}' for address, part in choices)
            lines.append(f"[{cell}] = {{{parts}}},")
        lines.append("},")
    lines.append(
        "}\nfunction answer(family, client)\n"
        "  local choices = answers[family][cells[client:toString()]]\n"
        "  if #choices == 1 then return choices[1][2] end\n"
        "  return pickwrandom(choices)\nend"
    )
    (folder / "answers.lua").write_text("\n".join(lines) + "\n")
    code = f"; if not answer then dofile('{folder}/answers.lua') end return answer('%s', bestwho)"
    zone = _zone_file(
        folder,
        [
            f'{_label(host)} {answers.ttl} IN LUA A "{code % family}"'
            for host, family in answers.hostnames.items()
        ],
    )
    (folder / "named.conf").write_text(f'zone "{ZONE}" {{ type master; file "{zone}"; }};\n')
    return _powerdns(
        setting, ["launch=bind", f"bind-config={folder}/named.conf", "enable-lua-records=shared"]
    )


def _powerdns(setting: Setting, extra: list[str]) -> Command:
    lines = [
        *extra,
        f"local-address=127.0.0.1:{setting.port}",
        f"socket-dir={setting.folder}",
        "edns-subnet-processing=yes",
        "receiver-threads=1",
        "distributor-threads=1",
        "guardian=no",
        "daemon=no",
        "security-poll-suffix=",
        "loglevel=3",
        "log-dns-details=no",
    ]
    (setting.folder / "pdns.conf").write_text("\n".join(lines) + "\n")
    return [program("pdns_server"), f"--config-dir={setting.folder}"]


def knot(setting: Setting) -> Command:
    """The geoip module, in its mode that reads a location database."""
    folder, answers = setting.folder, setting.answers
    cells = sorted(set(answers.cells.values()))
    lines = []
    for host, family in answers.hostnames.items():
        lines.append(f"{host}:")
        lines += [f'  - geo: "c{cell}"\n    A: {answers.by_cell[family, cell][0][0]}' for cell in cells]
    (folder / "geo.conf").write_text("\n".join(lines) + "\n")
    _zone_file(folder, [f"{_label(host)} {answers.ttl} IN A 192.0.2.250" for host in answers.hostnames])
    module = ["    dnssec: on", "    policy: online"] if setting.signed else []
    zone = ["    dnssec-signing: on", "    dnssec-policy: online"] if setting.signed else []
    (folder / "knot.conf").write_text(
        "\n".join(
            [
                "server:",
                f"    rundir: {folder}",
                f"    user: {getpass.getuser()}",
                f"    listen: 127.0.0.1@{setting.port}",
                "    udp-workers: 1",
                "    tcp-workers: 1",
                "    background-workers: 1",
                "    edns-client-subnet: on",
                "log:",
                "  - target: stderr",
                "    any: warning",
                "database:",
                f"    storage: {folder}",
                *(
                    ["policy:", "  - id: online", "    algorithm: ecdsap256sha256", "    nsec3: off"]
                    if setting.signed
                    else []
                ),
                "mod-geoip:",
                "  - id: places",
                f"    config-file: {folder}/geo.conf",
                f"    ttl: {answers.ttl}",
                "    mode: geodb",
                f"    geodb-file: {setting.database}",
                "    geodb-key: country/iso_code",
                *module,
                "zone:",
                f"  - domain: {ZONE}",
                f"    storage: {folder}",
                f"    file: {folder}/{ZONE}",
                *zone,
                "    zonefile-sync: -1",
                "    module: mod-geoip/places",
            ]
        )
        + "\n"
    )
    if setting.signed:  # the module signs what it answers when it starts, so there must be keys by then
        for role in ("ksk=yes", "zsk=yes"):
            _run("keymgr", "-c", f"{folder}/knot.conf", ZONE, "generate", "algorithm=ecdsap256sha256", role)
    return [program("knotd"), "-c", str(folder / "knot.conf")]


def program(name: str) -> str:
    """Where a program is: an ordinary user's search path leads to no servers."""
    return find(name) or name


def _run(*command: str) -> None:
    """Run a server's tool.

    Raises:
        SystemExit: it failed; with what it wrote.
    """
    done = subprocess.run([program(command[0]), *command[1:]], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def echo_python(setting: Setting) -> Command:
    """Each packet back, in Python."""
    return [sys.executable, str(BENCH / "udp_echo.py"), str(setting.port)]


def echo_c(setting: Setting) -> Command:
    """Each packet back, in C."""
    program = setting.folder / "echo"
    _run("cc", "-O2", "-o", str(program), str(BENCH / "dns_echo.c"))
    return [str(program), str(setting.port)]


PEERS = {
    "gdnsd": Peer(("gdnsd",), gdnsd),
    "powerdns_geoip": Peer(
        ("pdns_server", "pdnsutil", "*/pdns/libgeoipbackend.so"), powerdns_geoip, signs=True
    ),
    "powerdns_lua": Peer(("pdns_server", "*/pdns/libbindbackend.so"), powerdns_lua),
    "knot_geoip": Peer(("knotd", "keymgr", "*/knot/modules-*/geoip.so"), knot, signs=True),
    "echo_python": Peer((), echo_python, answers=False),
    "echo_c": Peer(("cc",), echo_c, answers=False),
}
