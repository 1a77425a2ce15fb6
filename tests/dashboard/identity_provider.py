"""An OpenID Connect provider that runs, and control before it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from gtm.dashboard.sign_in.identity import Identity
from gtm.dashboard.sign_in.oidc import CALLBACK, Provider
from tests.api.conftest import Server
from tests.ports import free_port
from tests.tools import identity_provider

SECRET = "s3cret: of/gtm"
GRANTS = (
    ("admin", "group", "gtm-admins"),
    ("fence-admin", "groups", "gtm-fence"),
    ("viewer", "groups", "gtm-viewers"),
)


@contextmanager
def with_identity(database_url: str, mode: str = "", **settings: Any) -> Iterator[tuple[Server, str]]:
    """Control whose people a provider knows, and the provider's issuer; `mode` is of `provider.mjs`, `settings` are control's."""
    command = identity_provider()
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"

    def identity(url: str) -> Identity:
        provider = Provider(
            issuer,
            client_id="gtm",
            secret=SECRET,
            url=url,
            clock=time.time,
            monotonic=time.monotonic,
        )
        return Identity(provider, GRANTS)

    with Server(database_url, identity=identity, **settings) as server:
        said = [*command, str(port), server.url + CALLBACK, mode]
        with subprocess.Popen(said, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "listening\n"
                yield server, issuer
            finally:
                process.terminate()


def consent(client: httpx.Client, answer: httpx.Response, name: str) -> httpx.Response:
    """Type a name at the provider and agree, until it sends the browser back; that last request is not made."""
    while True:
        while answer.is_redirect:
            target = str(answer.next_request.url) if answer.next_request else ""
            if CALLBACK in target:
                return answer
            answer = client.get(target)
        action = re.findall(r'action="([^"]+)"', answer.text)[0]
        prompt = re.findall(r'name="prompt" value="(\w+)"', answer.text)[0]
        answer = client.post(action, data={"prompt": prompt, "login": name, "password": "x"})
