"""Which proxy leads to a server, of what environments hold; and what is said of one that cannot be used."""

from __future__ import annotations

import pytest

from gtm.client import AsyncControl, ConnectionFailed, Control, Options, Retries, UsageError
from gtm.client.proxies import proxy_for

PROXY = "http://proxy.example:3128"
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
ONCE = Options(retries=Retries(times=0), insecure=True)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies of whoever runs the tests."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://gtm.example", None),
        ({"https_proxy": PROXY}, "https://gtm.example", PROXY),
        ({"HTTPS_PROXY": PROXY}, "https://gtm.example", PROXY),
        ({"http_proxy": PROXY}, "https://gtm.example", None),
        ({"all_proxy": PROXY}, "https://gtm.example", PROXY),
        ({"https_proxy": "", "all_proxy": PROXY}, "https://gtm.example", PROXY),
        ({"https_proxy": f"{PROXY}\n"}, "https://gtm.example", PROXY),
        ({"https_proxy": "proxy.example:3128"}, "https://gtm.example", PROXY),
        *(({"http_proxy": PROXY}, url, None) for url in ("http://localhost:1", "http://127.1.2.3", "http://[::1]")),
        *(
            ({"https_proxy": PROXY, "no_proxy": exceptions}, url, None)
            for exceptions, url in (
                ("*", "https://gtm.example"),
                ("a, .example", "https://gtm.example"),
                ("gtm.example:8443", "https://gtm.example:8443"),
                ("10.0.0.0/8", "https://10.9.8.7"),
                ("10.9.8.7", "https://10.9.8.7:8443"),
                ("fd00::/8", "https://[fd00::7]"),
                ("[fd00::7]", "https://[fd00::7]"),
                ("[fd00::]/8", "https://[fd00::7]"),
            )
        ),
        *(
            ({"https_proxy": PROXY, "no_proxy": exceptions}, "https://gtm.example", PROXY)
            for exceptions in ("", "fe80::/10", "[::1]", "xample", "10.0.0.0/8", "gtm.example:8443", "http://x")
        ),
        ({"https_proxy": PROXY, "no_proxy": "fe80::/10"}, "https://[fd00::7]", PROXY),
    ],
)  # fmt: skip
def test_the_proxy_of_a_server(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str, proxy: str | None
) -> None:
    """The scheme's proxy, or that of all; nobody's for this machine, nor for names, addresses and networks in `no_proxy`."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


@pytest.mark.parametrize("kind", [Control, AsyncControl])
@pytest.mark.parametrize("exceptions", ["fe80::/10", "[::1]", "localhost,::1,fd07:b51a:cc66:f0::/64"])
def test_networks_in_no_proxy(monkeypatch: pytest.MonkeyPatch, kind: type[Control], exceptions: str) -> None:
    """What container runtimes put into `no_proxy` ended every command (encode/httpx#3221, orbstack/orbstack#2456)."""
    monkeypatch.setenv("http_proxy", PROXY)
    monkeypatch.setenv("no_proxy", exceptions)
    kind("https://gtm.example", "gtm_x")


@pytest.mark.parametrize(
    "value",
    ["http://u:s3cretpw@[::1", "http://u:s3cretpw@h:99999", '"http://u:s3cretpw@h"', "socks5://u:s3cretpw@h:1", "ftp://u:s3cretpw@h", "http://", "a\nb"],
)  # fmt: skip
def test_no_proxy_of_that_kind(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """The variable is named, and its password is not told (basicmachines-co/basic-memory#1541 has a traceback)."""
    monkeypatch.setenv("all_proxy", value)
    with pytest.raises(UsageError, match="all_proxy is no URL") as caught:
        Control("https://gtm.example", "gtm_x")
    assert "s3cret" not in str(caught.value)


def test_a_proxy_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the way to the proxy that fails, and not control's address that is wrong."""
    monkeypatch.setenv("http_proxy", "http://u:s3cretpw@127.0.0.1:1")
    with pytest.raises(ConnectionFailed, match=r"through the proxy `http://u:\[hidden\]@127\.0\.0\.1:1`"):
        Control("http://gtm.example", "gtm_x", ONCE).get_status()
