"""What of a provider's answers is believed: everything that an attacker may have forged is not."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, JWKRegistry, KeySet, OctKey, RSAKey

from gtm.core.model.access import Role
from gtm.dashboard.sign_in.identity import name_of, role_of
from gtm.dashboard.sign_in.oidc import OidcError, Provider
from gtm.nesting import DEEPER, MAX_DEPTH
from gtm.options import base_url, grants, issuer
from gtm.settings import OidcSettings

pytestmark = pytest.mark.anyio
ISSUER = "https://login.example.com"
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
OTHER = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
NOW = 1_800_000_000
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/auth?tenant=1",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}
CLAIMS = {
    "iss": ISSUER,
    "aud": "gtm",
    "sub": "7",
    "exp": NOW + 300,
    "iat": NOW,
    "nonce": "n",
    "groups": ["a"],
}


class Fake:
    """A provider that says what it is told to."""

    def __init__(
        self, token: str = "", metadata: Any = METADATA, keys: Any = None, raw: bytes | None = None
    ) -> None:
        self.token = token
        self.metadata = metadata
        self.keys = keys or KeySet([KEY]).as_dict(private=False)
        self.raw = raw
        self.asked: list[str] = []
        self.now = 0.0

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Of each endpoint."""
        self.asked.append(request.url.path)
        if self.raw is not None:
            return httpx.Response(200, content=self.raw)
        found: Any = {"id_token": self.token}
        if request.url.path.endswith("openid-configuration"):
            found = self.metadata
        elif request.url.path == "/keys":
            found = self.keys
        return httpx.Response(200, json=found)

    def provider(self, transport: httpx.AsyncBaseTransport | None = None) -> Provider:
        """As control sees it."""
        return Provider(
            ISSUER,
            client_id="gtm",
            secret=None,
            url="https://gtm.example.com/",
            clock=lambda: NOW,
            monotonic=lambda: self.now,
            transport=transport or httpx.MockTransport(self.answer),
        )


def signed(claims: dict[str, Any], key: Any = KEY, **header: Any) -> str:
    """An ID token."""
    said = {"alg": "RS256", "kid": "one", **header}
    return jwt.encode(said, claims, key, algorithms=[said["alg"]])


async def test_what_holds() -> None:
    """A token by the provider's key, for this attempt; and the address that people are sent to."""
    fake = Fake(signed(CLAIMS))
    provider = fake.provider()
    assert (await provider.finish("c", None, "v", "n"))["groups"] == ["a"]
    attempt = await provider.begin()
    asked = httpx.URL(attempt.url)
    assert asked.params["tenant"] == "1"
    assert asked.params["redirect_uri"] == "https://gtm.example.com/sign-in/oidc/callback"
    assert asked.params["code_challenge_method"] == "S256"
    assert asked.params["scope"] == "openid email profile"
    assert fake.asked.count("/.well-known/openid-configuration") == 1
    fake.now = 3601.0
    await provider.begin()
    assert fake.asked.count("/.well-known/openid-configuration") == 2


async def test_networks_that_are_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IPv6 network among them let nobody sign in (encode/httpx#3221); a proxy that is none is told, without its password."""
    fake = Fake(signed(CLAIMS))
    monkeypatch.setenv("https_proxy", "http://u:s3cretpw@[::1")
    with pytest.raises(OidcError, match=r"cannot be asked .* https_proxy is no URL"):
        await fake.provider().begin()
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", f"fe80::/10,[::1],{httpx.URL(ISSUER).host}")
    await fake.provider().begin()


FORGED: dict[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "no token": lambda: "a.b.c",
    "another key": lambda: signed(CLAIMS, OTHER),
    "another nonce": lambda: signed({**CLAIMS, "nonce": "m"}),
    "no nonce": lambda: signed({key: value for key, value in CLAIMS.items() if key != "nonce"}),
    "another audience": lambda: signed({**CLAIMS, "aud": "other"}),
    "others as well": lambda: signed({**CLAIMS, "aud": ["gtm", "other"]}),
    "another party": lambda: signed({**CLAIMS, "azp": "other"}),
    "another issuer": lambda: signed({**CLAIMS, "iss": "https://evil.example"}),
    "an end long past": lambda: signed({**CLAIMS, "exp": NOW - 61}),
    "no end": lambda: signed({key: value for key, value in CLAIMS.items() if key != "exp"}),
    "a future": lambda: signed({**CLAIMS, "iat": NOW + 3600}),
    "nobody": lambda: signed({**CLAIMS, "sub": ""}),
    "no name of anybody": lambda: signed({**CLAIMS, "sub": 7}),
    "no algorithm": lambda: jwt.encode({"alg": "none"}, CLAIMS, OctKey.import_key(""), algorithms=["none"]),
    "the public key as a secret": lambda: signed(
        CLAIMS, OctKey.import_key(KEY.as_pem(private=False)), alg="HS256"
    ),
}


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1, 2000])
async def test_how_deep_a_token_may_be(levels: int) -> None:
    """As deep as other texts from outside."""
    head, _, _ = signed(CLAIMS).split(".")
    inner = levels - 1
    claims = json.dumps(CLAIMS)[:-1] + ', "more": ' + "[" * inner + "]" * inner + "}"
    body = urlsafe_b64encode(claims.encode()).rstrip(b"=")
    token = f"{head}.{body.decode()}.AAAA"
    with pytest.raises(OidcError) as refused:
        await Fake(token).provider().finish("c", None, "v", "n")
    assert (DEEPER in str(refused.value)) is (levels > MAX_DEPTH)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", FORGED)
async def test_what_does_not_hold(what: str) -> None:
    """Whatever of an ID token is not as it must be."""
    try:
        token = FORGED[what]()
    except ValueError:  # joserfc does not even write such a one
        token = f"eyJhbGciOiJub25lIn0.{signed(CLAIMS).split('.')[1]}."
    with pytest.raises(OidcError):
        await Fake(token).provider().finish("c", None, "v", "n")


async def test_keys_that_are_replaced_are_read_again() -> None:
    """But not for every token that somebody forges."""
    new = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"})
    fake = Fake(signed(CLAIMS, new, alg="ES256", kid="two"))
    provider = fake.provider()
    with pytest.raises(OidcError):
        await provider.finish("c", None, "v", "n")
    assert fake.asked.count("/keys") == 1
    fake.keys, fake.now = KeySet([KEY, new]).as_dict(private=False), 11.0
    assert (await provider.finish("c", None, "v", "n"))["sub"] == "7"


@pytest.mark.parametrize(
    "fake",
    [
        Fake(metadata={**METADATA, "issuer": "https://evil.example"}),
        Fake(metadata={**METADATA, "token_endpoint": None}),
        Fake(metadata={**METADATA, "jwks_uri": "file:///etc/passwd"}),
        Fake(metadata={**METADATA, "authorization_response_iss_parameter_supported": True}),
        Fake(keys={"keys": 1}),
        Fake(keys={"keys": [{"kty": "RSA"}]}),
        Fake(keys={"keys": []}),
        Fake(raw=b"[" * 100_000),
        Fake(raw=b"[]"),
        Fake(raw=b"x" * 2_000_000),
    ],
)
async def test_providers_that_are_none(fake: Fake) -> None:
    """Whatever they say, it is told in words."""
    fake.token = signed(CLAIMS)
    with pytest.raises(OidcError):
        await fake.provider().finish("c", None, "v", "n")


async def test_who_the_answer_says_it_is_from() -> None:
    """RFC 9207: another issuer beside the code is an attack."""
    fake = Fake(signed(CLAIMS))
    assert await fake.provider().finish("c", ISSUER, "v", "n")
    with pytest.raises(OidcError, match="not the provider's"):
        await fake.provider().finish("c", "https://evil.example", "v", "n")


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({}, None),
        ({"groups": "ops"}, Role.OPERATOR),
        ({"groups": ["all", "ops"]}, Role.OPERATOR),
        ({"groups": ["opsx", 7, None, ["ops"]]}, None),
        ({"groups": {"ops": True}}, None),
        ({"realm_access": {"roles": ["root"]}}, Role.ADMIN),
        ({"realm_access.roles": ["root"], "groups": ["ops"]}, Role.ADMIN),
        ({"realm_access": "root"}, None),
    ],
)
def test_roles(claims: dict[str, Any], role: Role | None) -> None:
    """By values of claims, also of claims in others; the highest of them."""
    given = grants(["viewer=group:all,operator=group:ops", "admin=realm_access.roles:root"])
    assert role_of(claims, given) == role


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"email": "A@b.example", "email_verified": True}, "a@b.example"),
        ({"email": "a@b.example", "email_verified": "true"}, "7@login.example.com"),
        ({"email": "a/b@b.example", "email_verified": True}, "7@login.example.com"),
        ({"email": "nothing", "email_verified": True}, "7@login.example.com"),
        ({"email": "a b@c.example", "email_verified": True}, "7@login.example.com"),
        ({"email": ["a@b.example"], "email_verified": True}, "7@login.example.com"),
    ],
)
def test_names(claims: dict[str, Any], name: str) -> None:
    """A verified address of mail, or what is the provider's alone; never a token's name, always one of a path."""
    assert name_of({"sub": "7", **claims}, ISSUER) == name
    odd = name_of({"sub": "auth0|/:\ud800" * 50}, ISSUER)
    assert odd.endswith("@login.example.com")
    assert len(odd) < 80


def test_settings_say_what_is_missing() -> None:
    """At the start, by the option's name."""
    for wrong in ("admin", "admin=group", "king=group:x", "edge=group:x", "admin=:x", "admin=a:"):
        with pytest.raises(ValueError, match=r"is not ROLE|no role for people"):
            grants([wrong])
    for wrong in (
        "login",
        "ftp://x",
        "http://login.example.com",
        "https://a/?b",
        "https://u@h",
        "https://a:b",
    ):
        with pytest.raises(ValueError, match="is not"):
            issuer(wrong)
    assert issuer("https://tenant.example/") == "https://tenant.example/"
    assert base_url(" https://gtm.example.com/x/ ") == "https://gtm.example.com/x"
    assert issuer("") is None
    whole = OidcSettings(ISSUER, "gtm", roles=grants(["admin=a:b"]))
    whole.require("https://gtm.example.com")
    OidcSettings().require(None)
    for part, missing in (
        (whole, "--dashboard-url"),
        (replace(whole, client_id=None), "--oidc-client-id"),
        (replace(whole, roles=()), "--oidc-roles"),
    ):
        with pytest.raises(ValueError, match=missing):
            part.require(None if part is whole else "https://gtm.example.com")


@pytest.mark.parametrize(
    "odd",
    [
        {"kty": "EC", "crv": "secp521k1", "x": "AA", "y": "AA", "kid": "odd"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "odd"},
        {"kty": "RSA", "n": "AA", "e": "AQAB", "kid": "odd"},
        {"kty": "OKP", "crv": "X9", "x": "AA"},
        {"kty": "EC", "crv": ["P-256"], "x": {}, "y": None},
        {"kty": "RSA", "kid": 7, "n": 1, "e": 2},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"},
        {"kty": "oct", "k": "AA"},
        {"kty": "RSA", "use": "enc"},
        {"kty": "RSA", "n": "_" * 171, "e": "AQAB"},  # 1,026 bits
        {"kty": "RSA", "n": "_" * 1367, "e": "AQAB"},  # 8,202 bits
        {**KEY.as_dict(private=False), "kid": "odd", "e": "AQAB" * 4},
        {**KEY.as_dict(private=False), "kid": "odd", "e": "A" * 100_000},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        "a",
        None,
    ],
)
async def test_keys_that_cannot_be_read_are_left_out(odd: Any) -> None:
    """One of them, as a provider may add on the way to new algorithms, keeps nobody from signing in (RFC 7517 §5)."""
    keys = {"keys": [odd, *KeySet([KEY]).as_dict(private=False)["keys"]]}
    assert (await Fake(signed(CLAIMS), keys=keys).provider().finish("c", None, "v", "n"))["sub"] == "7"
    with pytest.raises(OidcError, match="keys cannot be read"):
        await Fake(signed(CLAIMS), keys={"keys": [odd]}).provider().finish("c", None, "v", "n")


async def test_of_a_key_no_more_is_read_than_checks_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be its private half is looked at by nobody: without its primes it takes seconds to complete."""
    read: list[Any] = []
    real = JWKRegistry.import_key

    def import_key(said: Any) -> Any:
        read.append(said)
        return real(said)

    monkeypatch.setattr(JWKRegistry, "import_key", import_key)
    private = {"d": "B" * 2000, "x5c": ["A"], "key_ops": ["verify"], "oth": 7}
    keys = {"keys": [{**KEY.as_dict(private=False), **private}]}
    assert (await Fake(signed(CLAIMS), keys=keys).provider().finish("c", None, "v", "n"))["sub"] == "7"
    assert [set(one) for one in read] == [{"kty", "n", "e", "kid"}]


async def test_one_address_keeps_no_other_waiting() -> None:
    """While a provider takes its time over many codes of one address, the code of another is exchanged."""
    fake = Fake(signed(CLAIMS))
    waits, asked = asyncio.Event(), []

    async def answer(request: httpx.Request) -> httpx.Response:
        if b"code=crowd" in await request.aread():
            asked.append(request)
            await waits.wait()
        return fake.answer(request)

    provider = fake.provider(httpx.MockTransport(answer))
    crowd = [
        asyncio.create_task(provider.finish(f"crowd{number}", None, "v", "n", address="192.0.2.1"))
        for number in range(300)
    ]
    while sum(one.done() for one in crowd) < 300 - 20:  # noqa: ASYNC110 - four are exchanged, and 16 wait
        await asyncio.sleep(0)
    assert (await provider.finish("c", None, "v", "n", address="192.0.2.2"))["sub"] == "7"
    assert len(asked) <= 4
    waits.set()
    ends = await asyncio.gather(*crowd, return_exceptions=True)
    refused = [str(end) for end in ends if not isinstance(end, dict)]
    assert len(refused) == 300 - 20
    assert refused[0].endswith("16 of yours do already: try again")


async def test_what_is_packed_is_not_unpacked() -> None:
    """A short answer that would become a long one."""
    bomb = gzip.compress(b" " * 100_000_000)

    class Bomb(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield bomb

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx.Response(200, stream=Bomb(), headers={"content-encoding": "gzip"})

    tracemalloc.start()
    try:
        with pytest.raises(OidcError, match="compresses"):
            await Provider(
                ISSUER,
                client_id="gtm",
                secret=None,
                url="https://gtm.example.com",
                clock=lambda: NOW,
                monotonic=lambda: 0.0,
                transport=httpx.MockTransport(answer),
            ).begin()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000_000


@pytest.mark.parametrize(
    ("token", "told", "name"),
    [
        (
            {"email": "victim@example.com"},
            {"email": "me@example.com", "email_verified": True},
            "7@login.example.com",
        ),
        ({"email": "victim@example.com"}, {"email_verified": True}, "7@login.example.com"),
        ({"email_verified": True}, {"email": "victim@example.com"}, "7@login.example.com"),
        ({}, {"email": "me@example.com", "email_verified": True}, "me@example.com"),
        ({"email": "me@example.com", "email_verified": True}, {"email": "b@example.com"}, "me@example.com"),
    ],
)
async def test_an_address_is_verified_where_it_stands(
    token: dict[str, Any], told: dict[str, Any], name: str
) -> None:
    """That one address is verified says nothing of another, in the ID token or in userinfo."""
    fake = Fake(signed({**CLAIMS, **token}), {**METADATA, "userinfo_endpoint": f"{ISSUER}/me"})
    answer = fake.answer

    def with_userinfo(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/me":
            return httpx.Response(200, json={"sub": "7", **told})
        found = answer(request)
        if request.url.path == "/token":
            return httpx.Response(200, json={**json.loads(found.content), "access_token": "t"})
        return found

    fake.answer = with_userinfo  # type: ignore[method-assign]
    claims = await fake.provider().finish("c", None, "v", "n")
    assert name_of(claims, ISSUER) == name


@pytest.mark.parametrize(
    "claim",
    [
        {"exp": 1e400},
        {"exp": "x"},
        {"exp": None},
        {"exp": [1]},
        {"iat": {}},
        {"nbf": "x"},
        {"nbf": 1e400},
        {"aud": {}},
        {"aud": [[]]},
        {"aud": None},
        {"azp": []},
        {"sub": []},
        {"iss": []},
        {"iss": [ISSUER, "https://evil.example"]},
        {"nonce": ["n"]},
    ],
)
async def test_claims_of_other_kinds_are_refused(claim: dict[str, Any]) -> None:
    """By a word for the person, never by an error of our own."""
    with pytest.raises(OidcError):
        await Fake(signed({**CLAIMS, **claim})).provider().finish("c", None, "v", "n")


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "RS256", "kid": 7},
        {"alg": "RS256", "kid": ["one"]},
        {"alg": ["RS256"], "kid": "one"},
        {"alg": {}, "kid": "one"},
        {"alg": None},
        {"alg": "RS256", "kid": "one", "crit": ["x"], "x": 1},
        {"alg": "RS256", "kid": "one", "crit": 1},
        {"alg": "RS256", "kid": "one", "b64": False, "crit": ["b64"]},
        {"alg": "RS256", "jwk": KEY.as_dict(private=False)},
        {"alg": "ES256", "kid": "one"},
        {"alg": "dir", "enc": "A128GCM"},
        [],
        7,
    ],
)
async def test_headers_of_other_kinds_are_refused(header: Any) -> None:
    """Likewise, whatever stands before a token."""

    def part(value: Any) -> str:
        return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    body = part(CLAIMS)
    for token in (
        f"{part(header)}.{body}.AAAA",
        f"{part(header)}.{body}.",
        f"{part(header)}..{body}.AAAA.AAAA",
        f"{part(header)}.{part([])}.AAAA",
        f"{part(header)}.{'A' * 5}.\u00e9",
    ):
        with pytest.raises(OidcError):
            await Fake(token).provider().finish("c", None, "v", "n")


async def test_where_one_signs_out() -> None:
    """At the provider's address for that, if it names one that is one."""
    metadata = {**METADATA, "end_session_endpoint": f"{ISSUER}/out?a=1"}
    assert await Fake(metadata=metadata).provider().sign_out_url() == f"{ISSUER}/out?a=1&client_id=gtm"
    assert await Fake().provider().sign_out_url() is None
    for wrong in ("javascript:alert(1)", 7, "//evil.example"):
        with pytest.raises(OidcError):
            await Fake(metadata={**METADATA, "end_session_endpoint": wrong}).provider().sign_out_url()
