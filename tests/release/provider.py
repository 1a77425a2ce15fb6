"""The Terraform provider as it is released: archives, their checksums, the registry's manifest, and a filesystem mirror (`make provider`).

Everything lands in dist/provider. The same sources make the same bytes, by the same Go and zlib: paths and settings of whoever builds are kept
out, and archives carry no times. Go compiles for every platform on any.
A registry wants SHA256SUMS signed by its publisher's key: `gpg --detach-sign`; the mirror needs no registry and no signature.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path
from platform import machine

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "deploy" / "terraform" / "provider"
TARGET = ROOT / "dist" / "provider"
PLATFORMS = tuple(
    f"{system}_{machine}" for system in ("linux", "darwin", "windows") for machine in ("amd64", "arm64")
)
HOSTS = ("registry.terraform.io", "registry.opentofu.org")
"""Where Terraform and OpenTofu would look for `gtm/gtm`; a mirror stands for both."""
PROTOCOL = "6.0"
HERE = "linux_" + {"x86_64": "amd64", "aarch64": "arm64"}.get(machine(), machine())
"""The platform of this machine, as the tests have it."""
_SETTINGS = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-trimpath -buildvcs=false",
    "GOAMD64": "v1",
    "GOARM64": "v8.0",
    "GOFIPS140": "off",
}
"""What Go would else take from whoever builds, out of the environment or `go env -w`. cmd/go, "Environment variables"."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The first moment that an archive can tell."""


def version() -> str:
    """The provider's is gtm's own."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: str = tomllib.load(file)["project"]["version"]
    return found


def release(target: Path, platforms: tuple[str, ...] = PLATFORMS, *, sources: Path = SOURCES) -> list[Path]:
    """Build the provider for these platforms into a folder, which is emptied first.

    Args:
        target: the folder.
        platforms: as in PLATFORMS.
        sources: the provider's.

    Returns:
        What was made, but for the mirror.

    Raises:
        subprocess.CalledProcessError: it does not compile; the compiler has said why.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    name = f"terraform-provider-gtm_{version()}"
    made = [_archive(target, name, platform, sources) for platform in platforms]
    manifest = target / f"{name}_manifest.json"
    manifest.write_text(
        json.dumps({"version": 1, "metadata": {"protocol_versions": [PROTOCOL]}}, indent=2) + "\n"
    )
    made.append(manifest)
    sums = target / f"{name}_SHA256SUMS"
    sums.write_text(
        "".join(f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made))
    )
    for host in HOSTS:
        mirror = target / "mirror" / host / "gtm" / "gtm"
        mirror.mkdir(parents=True)
        for path in made:
            if path.suffix == ".zip":
                shutil.copy(path, mirror)
    return [*made, sums]


def build(program: Path, platform: str, sources: Path = SOURCES) -> None:
    """Compile it.

    Raises:
        subprocess.CalledProcessError: it does not compile; the compiler has said why.
    """
    system, machine = platform.split("_")
    go = shutil.which("go") or "/usr/local/go/bin/go"
    command = [go, "build", "-ldflags", f"-s -w -X main.version={version()}", "-o", str(program), "."]
    environment = {name: value for name, value in os.environ.items() if name != "GOEXPERIMENT"}
    environment |= _SETTINGS | {"GOOS": system, "GOARCH": machine}
    subprocess.run(command, cwd=sources, env=environment, check=True)


def _archive(target: Path, name: str, platform: str, sources: Path) -> Path:
    system, _ = platform.split("_")
    program = target / (f"terraform-provider-gtm_v{version()}" + (".exe" if system == "windows" else ""))
    build(program, platform, sources)
    path = target / f"{name}_{platform}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, mode in ((program, 0o755), (ROOT / "LICENSE", 0o644)):
            entry = zipfile.ZipInfo(file.name, _LONG_AGO)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    program.unlink()
    return path


def main() -> None:
    """Build for the platforms named, or for all."""
    wanted = tuple(sys.argv[1:]) or PLATFORMS
    if unknown := set(wanted) - set(PLATFORMS):
        sys.exit(
            f"{', '.join(sorted(unknown))}: not a platform of the provider; there are {', '.join(PLATFORMS)}"
        )
    if shutil.which("go") is None and not Path("/usr/local/go/bin/go").exists():
        sys.exit("the provider is built by Go, which is not installed here: https://go.dev/doc/install")
    for path in release(TARGET, wanted):
        print(path.relative_to(ROOT))
    print(f"{(TARGET / 'mirror').relative_to(ROOT)}: a filesystem mirror (deploy/terraform/README.md)")


if __name__ == "__main__":
    main()
