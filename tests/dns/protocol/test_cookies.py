"""Server cookies: the vectors of RFC 9018, its times, and what nobody can forge."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.dns.protocol import cookies
from gtm.dns.protocol.cookies import CookieVerdict, ServerCookies, siphash24
from tests.memory import held

SECRET = bytes.fromhex("e5e973e5a6b2a43f48e7dc849e37bfcf")
CLIENT = bytes.fromhex("2464c4abcf10c957")
ADDRESS = ip_address("198.51.100.100").packed
NOW = 1_559_731_985


def made(option: str) -> tuple[bytes, bytes]:
    """The client and the server cookie of an option's data."""
    data = bytes.fromhex(option)
    return data[:8], data[8:]


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", "310e0edd47db6f72"),
        (bytes(range(8)), "6224939a79f5f593"),
        (bytes(range(15)), "e545be4961ca29a1"),
    ],
)
def test_siphash(data: bytes, digest: str) -> None:
    """SipHash-2-4 gives its authors' test vectors, with the key 00 01 … 0f."""
    assert siphash24(bytes(range(16)), data).hex() == digest


@pytest.mark.rfc("9018", "A.1", "a client learns a new server cookie")
def test_a_new_cookie() -> None:
    """The first vector: a client cookie alone proves nothing, and gets this server cookie."""
    server = ServerCookies(SECRET)
    client, cookie = made("2464c4abcf10c957010000005cf79f111f8130c3eee29480")
    assert server.check(client, b"", ADDRESS, NOW) is CookieVerdict.NONE
    assert server.make(client, ADDRESS, NOW) == cookie


@pytest.mark.rfc("9018", "A.2", "the same client learns a renewed server cookie")
def test_a_renewed_cookie() -> None:
    """The second vector: after 40 minutes the cookie still counts, and is renewed."""
    server = ServerCookies(SECRET)
    client, cookie = made("2464c4abcf10c957010000005cf79f111f8130c3eee29480")
    assert server.check(client, cookie, ADDRESS, NOW + 2400) is CookieVerdict.OLD
    assert (
        server.make(client, ADDRESS, NOW + 2400)
        == made("2464c4abcf10c957010000005cf7a871d4a564a1442aca77")[1]
    )


@pytest.mark.rfc(
    "9018", "A.3", "another client learns a renewed server cookie; its reserved bytes are not zero"
)
def test_reserved_bytes() -> None:
    """The third vector: reserved bytes are hashed as they came, and zero in what is made."""
    server = ServerCookies(SECRET)
    client, cookie = made("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5")
    address = ip_address("203.0.113.203").packed
    assert server.check(client, cookie, address, 1_559_727_985 + 60) is CookieVerdict.GOOD
    assert server.check(client, cookie, address, 1_559_734_700) is CookieVerdict.BAD  # 1 h 52 min later
    assert (
        server.make(client, address, 1_559_734_700)
        == made("fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e")[1]
    )


@pytest.mark.rfc("9018", "A.4", "a query over IPv6 with a secret that was rolled over")
@pytest.mark.rfc("9018", "5", "cookies of the previous secret count, and are renewed with the new one")
def test_a_previous_secret() -> None:
    """The fourth vector: a cookie of the secret before is old, and the new one is made with the secret now."""
    old = bytes.fromhex("dd3bdf9344b678b185a6f5cb60fca715")
    new = bytes.fromhex("445536bcd2513298075a5d379663c962")
    address = ip_address("2001:db8:220:1:59de:d0f4:8769:82b8").packed
    client, cookie = made("22681ab97d52c298010000005cf7c57926556bd0934c72f8")
    now = 1_559_741_961
    assert ServerCookies(old).check(client, cookie, address, now) is CookieVerdict.GOOD
    assert ServerCookies(new, old).check(client, cookie, address, now) is CookieVerdict.OLD
    assert ServerCookies(new).check(client, cookie, address, now) is CookieVerdict.BAD
    assert (
        ServerCookies(new, old).make(client, address, now)
        == made("22681ab97d52c298010000005cf7c609a6bb79d16625507a")[1]
    )


@pytest.mark.rfc(
    "9018", "4.3", "a server cookie counts from 5 minutes ahead to 1 hour back, and is renewed after 30 min"
)
@pytest.mark.parametrize("made_at", [NOW, 0xFFFFFFFF, 0xFFFFFFFF - 1800, 10])
@pytest.mark.parametrize(
    ("age", "verdict"),
    [
        (-301, CookieVerdict.BAD),
        (-300, CookieVerdict.GOOD),
        (0, CookieVerdict.GOOD),
        (1800, CookieVerdict.GOOD),
        (1801, CookieVerdict.OLD),
        (3600, CookieVerdict.OLD),
        (3601, CookieVerdict.BAD),
        (1 << 31, CookieVerdict.BAD),
    ],
)
def test_times(made_at: int, age: int, verdict: CookieVerdict) -> None:
    """Ages are differences of 32-bit serial numbers, right across their end (RFC 1982)."""
    server = ServerCookies(SECRET)
    cookie = server.make(CLIENT, ADDRESS, made_at)
    assert server.check(CLIENT, cookie, ADDRESS, made_at + age + (1 << 32)) is verdict


@pytest.mark.rfc("7873", "6", "a server cookie is bound to the client's address and cookie")
@given(st.binary(min_size=8, max_size=8), st.sampled_from([4, 16]), st.data())
def test_cookies_are_bound_to_their_client(client: bytes, size: int, data: st.DataObject) -> None:
    """A cookie counts for its own client cookie and address, and no other; nor does a changed one."""
    server = ServerCookies(SECRET)
    address = data.draw(st.binary(min_size=size, max_size=size))
    cookie = server.make(client, address, NOW)
    assert server.check(client, cookie, address, NOW) is CookieVerdict.GOOD
    other = bytearray(client + address + cookie)
    at = data.draw(st.integers(0, len(other) - 1))
    other[at] ^= data.draw(st.integers(1, 255))
    changed = bytes(other)
    assert server.check(changed[:8], changed[8 + size :], changed[8 : 8 + size], NOW) is CookieVerdict.BAD


@given(st.binary(max_size=32), st.integers(0, 1 << 33))
def test_guesses_are_bad(cookie: bytes, now: int) -> None:
    """What was never made counts for nothing, whatever its length."""
    assert not ServerCookies(SECRET).check(CLIENT, cookie, ADDRESS, now).proven


def test_replies() -> None:
    """The option of a reply keeps a good cookie, and replaces any other by a fresh one."""
    server = ServerCookies(SECRET)
    server.tick(NOW)
    verdict, option = server.answer(CLIENT, "198.51.100.100")
    assert (verdict, option.hex()) == (
        CookieVerdict.NONE,
        "000a00182464c4abcf10c957010000005cf79f111f8130c3eee29480",
    )
    assert server.answer(option[4:], "198.51.100.100") == (CookieVerdict.GOOD, option)
    assert server.answer(option[4:], "198.51.100.101")[0] is CookieVerdict.BAD
    server.tick(NOW + 1801)
    verdict, renewed = server.answer(option[4:], "198.51.100.100")
    assert verdict is CookieVerdict.OLD
    assert renewed != option
    assert server.answer(renewed[4:], "198.51.100.100") == (CookieVerdict.GOOD, renewed)
    assert server.answer(CLIENT, "fe80::1%lo")[0] is CookieVerdict.NONE


def test_verdicts_are_forgotten_in_time() -> None:
    """What is remembered is forgotten within a minute, also if the clock steps back."""
    server = ServerCookies(SECRET)
    server.tick(NOW)
    _, option = server.answer(CLIENT, "192.0.2.1")
    assert server.answer(option[4:], "192.0.2.1")[0] is CookieVerdict.GOOD
    server.tick(NOW + 3700)
    assert server.answer(option[4:], "192.0.2.1")[0] is CookieVerdict.BAD
    server.tick(NOW)
    assert server.answer(option[4:], "192.0.2.1")[0] is CookieVerdict.GOOD


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many cookies come, few are remembered."""
    monkeypatch.setattr(cookies, "LIMIT", 8)
    server = ServerCookies(SECRET)

    def ask() -> None:
        for number in range(2000):
            server.answer(number.to_bytes(8), "192.0.2.1")

    assert held(ask) < 20_000


@pytest.mark.parametrize("secrets", [(b"", None), (bytes(15), None), (bytes(16), bytes(17))])
def test_secrets_have_16_bytes(secrets: tuple[bytes, bytes | None]) -> None:
    """Any other length is an error."""
    with pytest.raises(ValueError, match="has 16 bytes"):
        ServerCookies(*secrets)
