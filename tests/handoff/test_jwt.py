"""Signed handoffs: what is signed is read back, and nothing else is."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.handoff.claims import Claims, Issuer
from gtm.core.handoff.keys import OwnKey, PublicKey, PublicKeys, key_text, thumbprint
from gtm.core.handoff.verdict import Flaw
from gtm.core.model.services import Priority
from gtm.handoff.jwt import MAX_TOKEN, HandoffSigner, MalformedTokenError, made, parsed
from gtm.handoff.verifier import Verifier
from tests.core.strategies import quick

KEY = made()
CLAIMS = Claims(
    issuer="fra-1",
    region="eu-west",
    service="chat",
    issued=1_795_000_000,
    expires=1_795_000_030,
    nonce="AAAAAAAAAAAAAAAA",
    fence="0123456789abcdef",
    revision=12,
    tenant="acme",
    data_class="health",
    model="llama-3",
    priority=Priority.BATCH,
    client="192.0.2.0/24",
    once=True,
)
PUBLISHED = PublicKeys((PublicKey("fra-1", key_text(KEY.public)),), 1)
HEADER = {"alg": "EdDSA", "kid": thumbprint(key_text(KEY.public)), "typ": "JWT"}
PAYLOAD = json.loads(urlsafe_b64decode(HandoffSigner(KEY).sign(CLAIMS).split(b".")[1] + b"=="))


def b64(content: bytes | object) -> str:
    """Base64url without padding, of bytes or of a value's JSON."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def forged(header: object, payload: object, key: OwnKey = KEY) -> bytes:
    """A token of anything, with a signature that is right for `key`."""
    signed = f"{b64(header)}.{b64(payload)}".encode()
    return signed + b"." + b64(Ed25519PrivateKey.from_private_bytes(key.private).sign(signed)).encode()


names = st.text(min_size=1, max_size=40)
networks = st.one_of(
    st.just(""),
    st.tuples(st.integers(0, 255), st.integers(0, 255)).map(lambda two: f"10.{two[0]}.{two[1]}.0/24"),
    st.integers(1, 65_535).map(lambda part: f"2001:db8:{part:x}::/48"),
)


@quick(600)
@given(
    st.builds(
        Claims,
        issuer=st.just("fra-1"),
        region=names,
        service=names,
        issued=st.integers(0, 2**40),
        expires=st.integers(0, 2**40),
        nonce=st.text("abc_-", min_size=1, max_size=20),
        fence=st.text("0123456789abcdef", min_size=16, max_size=16),
        revision=st.integers(0, 2**40),
        tenant=st.none() | names,
        data_class=st.none() | names,
        model=st.none() | names,
        priority=st.none() | st.sampled_from(Priority),
        client=networks,
        hop=st.just(0),
        once=st.booleans(),
    )
)
def test_what_is_signed_is_read_back(claims: Claims) -> None:
    """Any claims, under any names, come back as they were, by the published key."""
    token = HandoffSigner(KEY).sign(claims)
    assert Verifier(PUBLISHED).verify(token) == (claims if len(token) <= MAX_TOKEN else Flaw.MALFORMED)


def test_the_example_of_the_rfc() -> None:
    """The key, thumbprint and signature of RFC 8037, appendix A."""
    private = urlsafe_b64decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=")
    public = Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    assert key_text(public) == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert thumbprint(key_text(public)) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
    signature = Ed25519PrivateKey.from_private_bytes(private).sign(signed)
    assert b64(signature) == (
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    )


@quick(1200)
@given(st.data())
def test_no_changed_token_is_believed(data: st.DataObject) -> None:
    """Bits flipped, bytes cut, doubled or put in: never claims, never an error."""
    token = bytearray(HandoffSigner(KEY).sign(CLAIMS))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(token) - 1))
        what = data.draw(st.sampled_from(["flip", "cut", "put", "drop"]))
        if what == "flip":
            token[at] ^= 1 << data.draw(st.integers(0, 7))
        elif what == "cut":
            del token[at:]
        elif what == "put":
            token[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        else:
            del token[at]
        if not token:
            break
    found = Verifier(PUBLISHED).verify(bytes(token))
    assert isinstance(found, Flaw) or bytes(token) == HandoffSigner(KEY).sign(CLAIMS)


@quick(1200)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.text("eyJ.-_=A", max_size=300).map(str.encode),
        st.tuples(st.binary(max_size=99), st.binary(max_size=99), st.binary(max_size=66)).map(
            lambda parts: ".".join(map(b64, parts)).encode()
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
            ),
            max_leaves=9,
        ).map(lambda value: forged(HEADER, value)),
    )
)
def test_anything_at_all_is_answered_with_a_flaw(token: bytes) -> None:
    """Whatever arrives is refused by a code, right signatures over other things included."""
    assert isinstance(Verifier(PUBLISHED).verify(token), Flaw)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({**HEADER, "alg": "none"}, "no algorithm (RFC 8725 §3.2)"),
        ({**HEADER, "alg": "HS256"}, "another algorithm"),
        ({**HEADER, "alg": "Ed25519"}, "another name"),
        ({**HEADER, "alg": "eddsa"}, "names are compared as they are"),
        ({**HEADER, "crit": ["exp"]}, "what must be understood"),
        ({**HEADER, "b64": False}, "another way to sign (RFC 7797)"),
        ({**HEADER, "jwk": {"kty": "OKP"}}, "a key of its own"),
        ({**HEADER, "jku": "https://x.test/keys"}, "keys from elsewhere"),
        ({**HEADER, "typ": "JWE"}, "another kind"),
        ({"alg": "EdDSA"}, "no key is named"),
        ({**HEADER, "kid": ""}, "an empty name"),
        ({**HEADER, "kid": None}, "no name"),
        ([HEADER], "no object"),
        ("EdDSA", "a string"),
    ],
)
def test_headers_that_are_refused(header: object, why: str) -> None:
    """Although the signature is right."""
    assert Verifier(PUBLISHED).verify(forged(header, PAYLOAD)) is Flaw.MALFORMED, why


def test_crit_is_not_passed_over() -> None:
    """Whatever it lists."""
    assert Verifier(PUBLISHED).verify(forged({**HEADER, "crit": []}, PAYLOAD)) is Flaw.MALFORMED


def test_no_secret_is_made_of_a_public_key() -> None:
    """A MAC keyed by the public key, the classic confusion (RFC 8725 §2.1), has neither algorithm nor length."""
    signed = f"{b64({**HEADER, 'alg': 'HS256'})}.{b64(PAYLOAD)}".encode()
    mac = hmac.HMAC(KEY.public, hashes.SHA256())
    mac.update(signed)
    assert Verifier(PUBLISHED).verify(signed + b"." + b64(mac.finalize()).encode()) is Flaw.MALFORMED


@pytest.mark.parametrize(
    "change",
    [
        {"iss": None},
        {"iss": ""},
        {"aud": ["eu-west"]},
        {"aud": ""},
        {"exp": "1795000030"},
        {"exp": 1795000030.5},
        {"exp": -1},
        {"exp": 2**64},
        {"iat": None},
        {"hop": 2},
        {"hop": -1},
        {"hop": True},
        {"once": 1},
        {"pushed": "198.51.100.0/24"},
        {"pushed": ""},
        {"pushed": "192.0.2.0/24", "hop": 1, "once": False},
        {"pushed": "192.0.2.1/32", "hop": 1, "once": True},
        {"pushed": 1, "hop": 1, "once": True},
        {"fence": "0123456789ABCDEF"},
        {"fence": "0123456789abcdef\n"},
        {"fence": ""},
        {"client": "192.0.2.1/32"},
        {"client": "192.0.2.7/24"},
        {"client": "everywhere"},
        {"priority": "now"},
        {"tenant": ""},
        {"tenant": "x" * 301},
        {"jti": ""},
        {"jti": "x" * 65},
        {"nbf": 1},
        {"countries": ["DE"]},
    ],
    ids=str,
)
def test_payloads_that_are_refused(change: dict[str, object]) -> None:
    """A claim of another form, or one that is unknown here and may restrict."""
    assert Verifier(PUBLISHED).verify(forged(HEADER, {**PAYLOAD, **change})) is Flaw.MALFORMED


@pytest.mark.parametrize("name", ["iss", "aud", "iat", "exp", "jti", "service", "fence", "revision", "hop"])
def test_claims_that_must_be_there(name: str) -> None:
    """Each by itself."""
    left = {key: value for key, value in PAYLOAD.items() if key != name}
    assert Verifier(PUBLISHED).verify(forged(HEADER, left)) is Flaw.MALFORMED


def test_a_token_of_two_kilobytes_is_the_longest() -> None:
    """It is refused by its length, before anything of it is read."""
    lengths = set()
    for size in range(1, 300):
        token = HandoffSigner(KEY).sign(
            replace(CLAIMS, model="\U0001f600" * 210, data_class="\xe9" * 20, tenant="x" * size)
        )
        read = Verifier(PUBLISHED).verify(token)
        assert (read is Flaw.MALFORMED) is (len(token) > MAX_TOKEN)
        lengths.add(len(token))
    assert {MAX_TOKEN - 1, MAX_TOKEN + 1} & lengths
    assert MAX_TOKEN in lengths
    with pytest.raises(MalformedTokenError, match="2048"):
        parsed(b"a." * 2000)


def test_base64_has_one_form() -> None:
    """Bits beyond the end, padding and blanks are refused: one handoff has one text."""
    token = HandoffSigner(KEY).sign(CLAIMS)
    head, body, tail = token.split(b".")
    flaws = [
        Verifier(PUBLISHED).verify(b".".join((head, body, bytes([*tail[:-1], letter]))))
        for letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        if letter != tail[-1]
    ]
    # The last of 86 characters has two bits of the signature: three others of 63 are signatures, and wrong ones.
    assert flaws.count(Flaw.BAD_SIGNATURE) == 3
    assert flaws.count(Flaw.MALFORMED) == 60
    for text in (token + b"==", b" " + token, token + b"\n", token.replace(b".", b"..", 1)):
        assert Verifier(PUBLISHED).verify(text) is Flaw.MALFORMED


def test_a_key_speaks_for_its_issuer_alone() -> None:
    """Nobody else's name, and no balancer's part for an edge."""
    verifier = Verifier(PUBLISHED)
    assert verifier.verify(HandoffSigner(KEY).sign(replace(CLAIMS, issuer="fra-2"))) is Flaw.WRONG_ISSUER
    assert verifier.verify(HandoffSigner(KEY).sign(replace(CLAIMS, hop=1))) is Flaw.WRONG_ISSUER
    balancer = PublicKey("fra-1", key_text(KEY.public), Issuer.BALANCER)
    verifier = Verifier(PublicKeys((balancer,), 1))
    assert verifier.verify(HandoffSigner(KEY).sign(CLAIMS)) is Flaw.WRONG_ISSUER
    assert verifier.verify(HandoffSigner(KEY).sign(replace(CLAIMS, hop=1))) == replace(CLAIMS, hop=1)


def test_who_tells_anothers_key_neither_speaks_for_it_nor_silences_it() -> None:
    """A key told by two names stays that of both; who has its private part signs as itself."""
    other = made()
    both = PublicKeys((*PUBLISHED.keys, PublicKey("mallory", key_text(KEY.public))), 2)
    for keys in (both, PublicKeys(tuple(reversed(both.keys)), 2)):
        assert Verifier(keys).verify(HandoffSigner(KEY).sign(CLAIMS)) == CLAIMS
        signed = HandoffSigner(OwnKey(other.private, KEY.public)).sign(CLAIMS)
        assert Verifier(keys).verify(signed) is Flaw.BAD_SIGNATURE


def test_keys_that_are_not_published() -> None:
    """None at all, and another's."""
    token = HandoffSigner(made()).sign(CLAIMS)
    assert Verifier().verify(token) is Flaw.UNKNOWN_KEY
    assert Verifier(PUBLISHED).verify(token) is Flaw.UNKNOWN_KEY


@pytest.mark.parametrize("network", ["192.0.2.0/24", ""])
def test_a_push_says_whom_its_balancer_saw(network: str) -> None:
    """A network, or that it saw none, which is another thing than a client that comes itself."""
    claims = replace(CLAIMS, hop=1, pushed=network)
    assert claims.carried
    assert parsed(HandoffSigner(KEY).sign(claims)).claims == claims
    assert not replace(CLAIMS, hop=1).carried
