"""What keeps pages from doing what nobody asked for: headers, cookies, where a form comes from, how often somebody may try.

Sources: Content Security Policy Level 3; RFC 6265bis (cookie name prefixes, SameSite); the Fetch Metadata draft (Sec-Fetch-Site); OWASP's
cheat sheet on cross-site request forgery (signed double submit).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Send

from gtm.api.context import whose

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # for what does not know `frame-ancestors`
    "Referrer-Policy": "same-origin",  # `no-referrer` would take the Origin from forms, too
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every answer. `frame-ancestors` keeps others from laying a page under their own."""
PERSONAL = HEADERS | {"Cache-Control": "no-store"}
"""Of every answer that is not the same for all: nothing on the way, nor the browser, keeps it."""
_OF_ALL = {
    b"content-security-policy": b"default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
_PLAIN, _SECURE = "gtm", "__Host-gtm"
_MOST_NETWORKS = 10_000
_MOST_SHOWN = 200
CSRF = "csrf"
"""The field of a form, and `X-CSRF-Token` the header, that shows that a page of ours sent it."""


def guarded(send: Send, **more: str) -> Send:
    """The same, with what keeps an answer from being framed, or taken for something else, where it does not say so itself.

    Args:
        send: the answer, as ASGI has it.
        more: further headers, with underscores for hyphens.
    """
    added = {**_OF_ALL, **{name.replace("_", "-").encode(): value.encode() for name, value in more.items()}}

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            present = {name.lower() for name, _ in given}
            message = {
                **message,
                "headers": [*given, *(one for one in added.items() if one[0] not in present)],
            }
        await send(message)

    return sent


def is_secure(request: Request, url: str | None) -> bool:
    """Whether the browser's connection is encrypted: this process's own, or by its known address that of what stands before it."""
    return request.url.scheme == "https" or (url or "").startswith("https://")


def cookie_name(*, secure: bool) -> str:
    """`__Host-` says that nobody else may have set it: the browser takes such a one over TLS alone."""
    return _SECURE if secure else _PLAIN


def cookie(request: Request, name: str) -> str | None:
    """The value of a cookie (RFC 6265 §4.2.1); of two, the last counts. None: it is not there.

    Ours have neither quotes nor escapes. `Request.cookies` undoes these in all cookies there are, which may take the square of their length
    (CVE-2024-7592).
    """
    found = None
    for line in request.headers.getlist("cookie"):
        for pair in line.split(";"):
            given, _, value = pair.partition("=")
            if given.strip() == name:
                found = value.strip()
    return found


def set_cookie(response: Response, secret: str, *, secure: bool, lasts: int) -> None:
    """Hand the browser a session's secret, which no script sees."""
    response.set_cookie(
        cookie_name(secure=secure),
        secret,
        max_age=lasts,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def clear_cookie(response: Response, *, secure: bool) -> None:
    """Take it back."""
    response.delete_cookie(
        cookie_name(secure=secure), path="/", secure=secure, httponly=True, samesite="strict"
    )


def csrf_token(secret: str) -> str:
    """What forms of a session show; it follows from the secret, and the secret not from it."""
    return hmac.new(secret.encode(errors="replace"), b"gtm form", sha256).hexdigest()


def is_same_origin(request: Request, url: str | None) -> bool:
    """Whether a page of ours sent a request, as far as the browser says.

    Ours are those of this very address, and of `url`, where people find us although a proxy asks by another name. Where both are one,
    the scheme counts, too.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    if origin is None:
        return True
    host = request.headers.get("host", "").lower()
    try:
        sent, known = urlsplit(origin.lower()), urlsplit((url or "").lower())
    except ValueError:
        return False
    if url is not None and sent.netloc == known.netloc:
        return sent.scheme == known.scheme
    return sent.netloc == host


def elsewhere(request: Request, url: str | None) -> str:
    """What to tell who sent a form that is not ours, as far as the browser says; empty: it is.

    Behind a proxy that asks by another name, it may well be theirs: then a setting is missing.
    """
    if is_same_origin(request, url):
        return ""
    here = url or f"{request.url.scheme}://{request.headers.get('host', '')}"
    origin = request.headers.get("origin", "")
    sent = f" (`{origin[:_MOST_SHOWN]}`, and this is `{here[:_MOST_SHOWN]}`)" if origin else ""
    return (
        f"this form was sent from another site{sent}. If a proxy stands before gtm, set GTM_DASHBOARD_URL of control to the "
        "address that people use, such as https://gtm.example.com"
    )


class Attempts:
    """How often a network may try in vain: an address of IPv4 and a /64 of IPv6 ten times at once, then once in six seconds; a /48 ten times as often.

    Laws:
      1. There is no bound on all together: it would let a few keep everybody out.
      2. What is kept is bounded, in two generations as in `gtm.core.memory`. Who wants to be forgotten needs so many other networks that their own
         attempts are more than what that gains. Who has not tried for a minute, or ten, is where they began.

    Args:
        clock: monotonic seconds.
        most: networks of a generation.
    """

    BURST, EVERY_S = 10.0, 6.0

    def __init__(self, clock: Callable[[], float], most: int = _MOST_NETWORKS) -> None:
        self._clock = clock
        self._most = most
        self._young: dict[str, tuple[float, float]] = {}
        self._old: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def take(self, address: str) -> bool:
        """Whether one more attempt from an address may be looked at."""
        now = self._clock()
        left = [(network, self._left(network, times, now)) for network, times in _networks(address)]
        allowed = all(one >= 1.0 for _, one in left)
        if allowed:  # else nothing is known of it that was not
            for network, one in left:
                self._keep(network, one - 1.0, now)
        return allowed

    def give_back(self, address: str) -> None:
        """An attempt was not in vain, and does not count."""
        now = self._clock()
        for network, times in _networks(address):
            self._keep(network, min(self.BURST * times, self._left(network, times, now) + 1.0), now)

    def _left(self, network: str, times: float, now: float) -> float:
        burst = self.BURST * times
        left, at = self._young.get(network) or self._old.get(network) or (burst, now)
        return min(burst, left + (now - at) * times / self.EVERY_S)

    def _keep(self, network: str, left: float, now: float) -> None:
        if network not in self._young and len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[network] = left, now


def _networks(address: str) -> tuple[tuple[str, float], ...]:
    """Whom an attempt counts for, and how much more than others they may have.

    >>> _networks("192.0.2.1"), _networks("2001:db8::1")
    ((('192.0.2.1', 1.0),), (('2001:db8::/64', 1.0), ('2001:db8::/48', 10.0)))
    """
    one = whose(address)
    network, _, length = one.partition("/")
    if not length:
        return ((one, 1.0),)
    return (one, 1.0), (f"{ip_network((int(ip_address(network)), 48), strict=False)}", 10.0)
