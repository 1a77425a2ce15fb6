"""An OpenID Connect provider, as one that relies on it sees it: authorization code with PKCE.

Sources: OpenID Connect Core 1.0 (§3.1), Discovery 1.0 (§4), RFC 6749 (§4.1), RFC 7636 (PKCE), RFC 9207 (`iss`), RFC 9700 (§2.1). Signatures are joserfc's work.

Laws:
  1. Nothing that a provider sends is believed before its ID token holds: signed by a key of its own, by an algorithm with a public key, for this client, by
     this issuer, in time, with the nonce of this very attempt.
  2. Everything read is bounded: in size, in time, and in how often it is asked for. Of a key only what a signature is checked with is looked at.
  3. Nobody's attempts keep others waiting: codes are exchanged for one address after the other.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from gtm.client.proxies import proxy_for
from gtm.nesting import NestingError, loads, shallow
from gtm.secret import remember, said
from gtm.storage.turns import Busy, TurnLimits, Turns
from gtm.transport import tls_context

CALLBACK = "/sign-in/oidc/callback"
ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
"""By which ID tokens may be signed: with public keys, all of them."""
_SCOPES = ("openid", "email", "profile")
_TIMEOUT = 10.0
_MOST_BYTES = 1024 * 1024
_MOST_KEYS = 100
_PARTS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""Of keys by their kind: the members of their public half (RFC 7518 §6, RFC 8037 §2). What else a key has, such as `d`, is not read."""
_CURVES = {"EC": ("P-256", "P-384", "P-521"), "OKP": ("Ed25519",)}
_BITS = range(2048, 8192 + 1)
"""Of an RSA key: RFC 7518 §3.3 wants the first; a signature by the last takes a millisecond to check."""
_EXPONENT_BYTES = 8
_LONGEST_PART = 4 * _BITS[-1] // 8
_PLAIN = {"Accept": "application/json", "Accept-Encoding": "identity"}
_KEPT = 3600.0
"""Seconds for which what a provider says of itself is believed."""
_EXCHANGES = TurnLimits(places=8, each=4, waiting_each=16, waiting=256, patience=15.0)
"""Codes that are exchanged at the same time, and those that wait."""
_PAUSE = 10.0
"""Seconds between looks at its keys for one that is not known, and at a provider that does not answer."""
_LEEWAY = 60
"""Seconds by which clocks may differ."""


_WRONG = (JoseError, KeyError, TypeError, ValueError)
"""What joserfc raises about a token that does not hold, or is none."""


class OidcError(Exception):
    """Signing in by the provider did not work; the message is for the person who tried."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a browser keeps while somebody signs in at the provider, and where it is sent for that."""

    url: str
    state: str
    nonce: str
    verifier: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What the provider says of itself, its keys, and when that was read (monotonic seconds)."""

    metadata: Mapping[str, Any]
    keys: KeySet
    at: float


class Provider:
    """One provider.

    Args:
        issuer: its identifier, a URL without a slash at the end.
        client_id: what this control is called there.
        secret: what it shows there; None: it is a public client.
        url: where people find the dashboard.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
        transport: how the provider is reached; None: by the network.
    """

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        secret: str | None,
        url: str,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if secret is not None:
            remember(secret)
        self.issuer = issuer
        self._client_id = client_id
        self._secret = secret
        self._redirect_uri = url.rstrip("/") + CALLBACK
        self._clock = clock
        self._monotonic = monotonic
        self._transport = transport
        self._known: _Known | None = None
        self._failed: tuple[float, str] | None = None
        self._looking = asyncio.Lock()
        self._exchanges = Turns(_EXCHANGES, "people who sign in by the provider wait for their turn")

    async def begin(self) -> Attempt:
        """Where to send somebody who wants to sign in.

        Raises:
            OidcError: the provider does not answer, or not as one.
        """
        metadata = (await self._look()).metadata
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        offered = metadata.get("scopes_supported")
        more = [one for one in ("groups",) if isinstance(offered, list) and one in offered]
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join((*_SCOPES, *more)),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        url = _with_query(_endpoint(metadata, "authorization_endpoint"), asked)
        return Attempt(url, state, nonce, verifier)

    async def finish(
        self, code: str, issuer: str | None, verifier: str, nonce: str, *, address: str = ""
    ) -> dict[str, Any]:
        """What the provider claims of whoever comes back from it with a code.

        Args:
            code: that it gave them.
            issuer: who it says it is beside the code, if it does.
            verifier: of the attempt.
            nonce: likewise.
            address: where they come from.

        Raises:
            OidcError: it does not hold.
        """
        known = await self._look()
        required = known.metadata.get("authorization_response_iss_parameter_supported") is True
        if issuer != self.issuer and (issuer is not None or required):
            raise OidcError("the answer is not the provider's: begin again")
        try:
            async with self._exchanges.turn(address):
                return await self._claims(known, code, verifier, nonce)
        except Busy as busy:
            raise OidcError(f"{busy}: try again") from busy

    async def sign_out_url(self) -> str | None:
        """Where people sign out at the provider itself (RP-Initiated Logout 1.0, §2); None: it does not say.

        Raises:
            OidcError: the provider does not answer, or not as one.
        """
        metadata = (await self._look()).metadata
        if "end_session_endpoint" not in metadata:
            return None
        return _with_query(_endpoint(metadata, "end_session_endpoint"), {"client_id": self._client_id})

    async def _claims(self, known: _Known, code: str, verifier: str, nonce: str) -> dict[str, Any]:
        answer = await self._tokens(known.metadata, code, verifier)
        claims = await self._id_token(known, answer.get("id_token"), nonce)
        endpoint = known.metadata.get("userinfo_endpoint")
        access = answer.get("access_token")
        if (
            isinstance(endpoint, str)
            and isinstance(access, str)
            and access.isascii()
            and access.isprintable()
        ):
            more = await self._ask("GET", endpoint, headers={"Authorization": f"Bearer {access}"})
            if more.get("sub") != claims["sub"]:  # Core §5.3.2
                raise OidcError("the provider tells of somebody else than who signed in")
            # Whether an address is verified is said of the one beside it.
            told = claims if "email" in claims else more
            address = {key: told.get(key) for key in ("email", "email_verified")}
            return {**more, **claims, **address}
        return claims

    async def _tokens(self, metadata: Mapping[str, Any], code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        auth = None
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if self._secret is None:
            form["client_id"] = self._client_id
        elif "client_secret_basic" in methods:
            # RFC 6749 §2.3.1: both are form-encoded first.
            encoded = [urlencode({"": text})[1:] for text in (self._client_id, self._secret)]
            auth = httpx.BasicAuth(*encoded)
        else:
            form |= {"client_id": self._client_id, "client_secret": self._secret}
        return await self._ask("POST", _endpoint(metadata, "token_endpoint"), data=form, auth=auth)

    async def _id_token(self, known: _Known, text: Any, nonce: str) -> dict[str, Any]:
        if not isinstance(text, str):
            raise OidcError("the provider sent no ID token")
        try:
            claims = self._checked(known.keys, text, nonce)
        except _WRONG as error:
            # Its keys may be others by now (Core §10.1.1).
            if self._monotonic() - known.at < _PAUSE:
                raise OidcError(f"the provider's ID token does not hold: {_words(error)}") from error
            renewed = await self._look(newer_than=known.at)
            try:
                claims = self._checked(renewed.keys, text, nonce)
            except _WRONG as again:
                raise OidcError(f"the provider's ID token does not hold: {_words(again)}") from again
        return claims

    def _checked(self, keys: KeySet, text: str, nonce: str) -> dict[str, Any]:
        """The claims of an ID token that holds (Core §3.1.3.7)."""
        for part in text.split(".")[:2]:  # joserfc would find out by its stack
            loads(urlsafe_b64decode(part + "=="))
        claims = jwt.decode(text, keys, algorithms=list(ALGORITHMS)).claims
        registry = jwt.JWTClaimsRegistry(
            now=int(self._clock()),
            leeway=_LEEWAY,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self._client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        registry.validate(claims)
        if (claims["iss"], claims["nonce"]) != (self.issuer, nonce):
            raise ValueError("it says several things where one is due")
        audience, party = claims["aud"], claims.get("azp")
        if party != self._client_id and (
            party is not None or audience not in (self._client_id, [self._client_id])
        ):
            raise ValueError("it is for others as well")
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise ValueError("it does not say who it is about")
        return dict(claims)

    # What the provider says of itself

    async def _look(self, newer_than: float | None = None) -> _Known:
        """What is known of it; read again after an hour, or if that was before a time."""
        async with self._looking:
            known, now = self._known, self._monotonic()
            if known is not None and now - known.at < _KEPT and (newer_than is None or known.at > newer_than):
                return known
            if self._failed is not None and now - self._failed[0] < _PAUSE:
                raise OidcError(self._failed[1])
            try:
                self._known = known = await self._read()
            except OidcError as error:
                self._failed = self._monotonic(), str(error)
                raise
            return known

    async def _read(self) -> _Known:
        metadata = await self._ask("GET", f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if metadata.get("issuer") != self.issuer:  # Discovery §4.3
            raise OidcError(
                "the provider calls itself otherwise than GTM_OIDC_ISSUER does: set that to its `issuer`, to the letter"
            )
        keys = (await self._ask("GET", _endpoint(metadata, "jwks_uri"))).get("keys")
        found = [key for one in (keys if isinstance(keys, list) else ())[:_MOST_KEYS] for key in _key(one)]
        if not found:
            raise OidcError("the provider's keys cannot be read")
        return _Known(metadata, KeySet(found), self._monotonic())

    async def _ask(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        """A JSON object that the provider answers."""
        try:
            proxy = proxy_for(url)
        except ValueError as error:
            raise OidcError(f"the provider cannot be asked ({url}): {error}") from error
        try:
            async with (
                asyncio.timeout(_TIMEOUT),
                httpx.AsyncClient(
                    timeout=_TIMEOUT,
                    transport=self._transport,
                    headers=_PLAIN,
                    trust_env=False,
                    proxy=proxy,
                    verify=tls_context(None),
                ) as client,
                client.stream(method, url, **more) as answer,
            ):
                if answer.headers.get("content-encoding", "identity").lower() != "identity":
                    # A few bytes could become gigabytes.
                    raise OidcError(f"the provider compresses its answer although asked not to ({url})")
                raw = bytearray()
                async for piece in answer.aiter_bytes():
                    raw += piece
                    if len(raw) > _MOST_BYTES:
                        raise OidcError(f"the provider's answer is too long ({url})")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise OidcError(
                f"the provider does not answer ({url}): try again, or sign in with a token"
            ) from error
        try:
            content = msgspec.json.decode(shallow(bytes(raw)))
        except NestingError as error:
            raise OidcError(f"the provider's answer is {error} ({url})") from error
        except ValueError as error:
            raise OidcError(
                f"the provider's answer is no JSON (status {answer.status_code}, {url})"
            ) from error
        if answer.status_code != 200 or not isinstance(content, dict):
            said = content.get("error") if isinstance(content, dict) else None
            raise OidcError(f"the provider refuses (status {answer.status_code}{_said(said)}): begin again")
        return content


def _key(said: Any) -> list[Key]:
    """A key that may sign; none of one that is for something else, or that cannot be read (RFC 7517 §5: those are left out)."""
    public = _public(said)
    if public is None:
        return []
    try:
        key = JWKRegistry.import_key(public)
        key.ensure_kid()
        key.public_key  # noqa: B018 - it is read when it is first needed
    except Exception:  # noqa: BLE001 - joserfc and cryptography raise what they like about what is no key
        return []
    return [key]


def _public(said: Any) -> dict[str, Any] | None:
    """What of a key a signature is checked with, if it is as large as may be; None: it is no key to check signatures with."""
    kind = said.get("kty") if isinstance(said, dict) else None
    if not isinstance(kind, str) or kind not in _PARTS or said.get("use", "sig") != "sig":
        return None
    more = [name for name in ("kid", "alg") if name in said]
    found = {name: said.get(name) for name in ("kty", *_PARTS[kind], *more)}
    if not all(isinstance(part, str) and len(part) <= _LONGEST_PART for part in found.values()):
        return None
    if kind != "RSA":
        return found if found["crv"] in _CURVES[kind] else None
    try:
        modulus, exponent = (urlsafe_b64decode(f"{found[name]}==").lstrip(b"\0") for name in ("n", "e"))
    except ValueError:
        return None
    bits = int.from_bytes(modulus).bit_length()
    return found if bits in _BITS and len(exponent) <= _EXPONENT_BYTES else None


def _with_query(endpoint: str, asked: Mapping[str, str]) -> str:
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"


def _endpoint(metadata: Mapping[str, Any], name: str) -> str:
    found = metadata.get(name)
    if not isinstance(found, str) or not found.startswith(("https://", "http://")):
        raise OidcError(f"the provider does not say what its `{name}` is")
    return found


def _said(text: Any) -> str:
    return f", {text[:100]}" if isinstance(text, str) and text.isprintable() else ""


def _words(error: Exception) -> str:
    return said(error)[:200]
