"""What replies say of the server itself: NSID, cookies, keepalive, and the names of class CHAOS."""

from __future__ import annotations

import struct
from dataclasses import fields

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol import wire
from gtm.dns.protocol.cookies import ServerCookies
from gtm.dns.protocol.options import NO_OPTIONS, ServerOptions, reply_options
from gtm.telemetry import Counts
from tests.dns.world import RESOLVER, both, locate, query, router

CLIENT = bytes(range(8))
COOKIES = ServerCookies(bytes(16))
EVERYTHING = ServerOptions(b"fra-1", b"gtm 1.0", 10.0, COOKIES)
SERVER = Answerer(router(), locate, Counts(), options=EVERYTHING)
PLAIN = Answerer(router(), locate, Counts())
NAMES = ["chat.demo.test", "nope.demo.test", "example.com", "demo.test"]


def asked(
    *options: tuple[int, bytes], name: str = "chat.demo.test", rdclass: str = "IN", rdtype: str = "A"
) -> bytes:
    """A query with these options."""
    generic = [dns.edns.GenericOption(dns.edns.OptionType.make(code), data) for code, data in options]
    return dns.message.make_query(name, rdtype, rdclass, use_edns=0, options=generic).to_wire()


def returned(
    packet: bytes, *, tcp: bool = False, server: Answerer = SERVER, client: str = RESOLVER
) -> dict[int, bytes]:
    """The options of the reply, which must be the same both ways."""
    options = both(server, packet, tcp=tcp, client=client).options
    return {int(option.otype): option.to_wire() or b"" for option in options}


def alone(*options: tuple[int, bytes]) -> bytes:
    """A query without a question, with these options."""
    data = b"".join(wire.option(code, item) for code, item in options)
    opt = struct.pack("!BHHBBHH", 0, 41, 1232, 0, 0, 0, len(data)) + data
    return struct.pack("!6H", 0x1234, 0, 0, 0, 0, 1) + opt


@pytest.mark.rfc("5001", "2.2", "a server's identifier comes back to who asks for it, and to nobody else")
@pytest.mark.parametrize("name", NAMES)
def test_nsid(name: str) -> None:
    """NSID is answered when asked for, whatever the query's option holds (RFC 5001 §2.1)."""
    for data in (b"", b"payload"):
        assert returned(asked((wire.OPTION_NSID, data), name=name))[wire.OPTION_NSID] == b"fra-1"
    assert wire.OPTION_NSID not in returned(asked(name=name))
    assert wire.OPTION_NSID not in returned(asked((wire.OPTION_NSID, b""), name=name), server=PLAIN)


@pytest.mark.rfc("7828", "3.3.2", "over TCP, a client that asks for it is told the idle timeout in 100 ms")
@pytest.mark.rfc("7828", "3.3.1", "over UDP, edns-tcp-keepalive is ignored")
@pytest.mark.parametrize("data", [b"", b"\0\x01"])
def test_keepalive(data: bytes) -> None:
    """A client over TCP that sends edns-tcp-keepalive is told the idle timeout; over UDP nobody is."""
    packet = asked((wire.OPTION_KEEPALIVE, data))
    assert returned(packet, tcp=True) == {wire.OPTION_KEEPALIVE: (100).to_bytes(2)}
    assert returned(packet) == {}
    assert returned(asked(), tcp=True) == {}
    assert returned(packet, tcp=True, server=PLAIN) == {}


@pytest.mark.rfc("7830", "6", "padding is not answered over transport that is not encrypted")
@pytest.mark.rfc("6891", "6.1.2", "unknown options are ignored")
@pytest.mark.parametrize("code", [wire.OPTION_PADDING, 4, 100, 65001])
def test_other_options(code: int) -> None:
    """Padding and unknown options don't come back, on either transport."""
    for tcp in (False, True):
        assert returned(asked((code, bytes(40))), tcp=tcp) == {}


@pytest.mark.rfc("7873", "5.2.3", "a client cookie alone is answered, with a server cookie beside")
@pytest.mark.rfc("7873", "5.2.4", "a server cookie that is bad counts as none")
@pytest.mark.rfc("7873", "5.2.5", "a good cookie is answered")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tcp", [False, True])
def test_cookies(name: str, tcp: bool) -> None:
    """A reply returns the client's cookie with a server cookie, which is good from then on, from that address."""
    first = returned(asked((wire.OPTION_COOKIE, CLIENT), name=name), tcp=tcp)[wire.OPTION_COOKIE]
    assert len(first) == 24
    assert first[:8] == CLIENT
    assert returned(asked((wire.OPTION_COOKIE, first), name=name), tcp=tcp)[wire.OPTION_COOKIE] == first
    for wrong in (first[:-1] + b"?", CLIENT + bytes(8), CLIENT + bytes(32)):
        assert returned(asked((wire.OPTION_COOKIE, wrong), name=name), tcp=tcp)[wire.OPTION_COOKIE] == first
    other = returned(asked((wire.OPTION_COOKIE, first), name=name), tcp=tcp, client="10.1.0.1")
    assert other[wire.OPTION_COOKIE] != first
    assert wire.OPTION_COOKIE not in returned(asked((wire.OPTION_COOKIE, CLIENT), name=name), server=PLAIN)


@pytest.mark.rfc("7873", "5.2.2", "a COOKIE option of a wrong length is FORMERR")
@pytest.mark.parametrize("size", [0, 1, 7, 9, 15, 41])
def test_cookies_of_a_wrong_length(size: int) -> None:
    """Whether cookies are offered or not, one of a wrong length is a format error."""
    for server in (SERVER, PLAIN):
        reply = both(server, asked((wire.OPTION_COOKIE, bytes(size))))
        assert reply.rcode() == dns.rcode.FORMERR
        assert reply.edns == 0


@pytest.mark.rfc("7873", "5.2", "of several COOKIE options the first counts")
def test_the_first_cookie_counts() -> None:
    """Further cookies are ignored."""
    cookie = returned(asked((wire.OPTION_COOKIE, CLIENT), (wire.OPTION_COOKIE, bytes(8))))[wire.OPTION_COOKIE]
    assert cookie[:8] == CLIENT


@pytest.mark.rfc("7873", "5.4", "a query without a question that has a cookie gets a cookie")
@pytest.mark.rfc("9619", "4", "without a cookie, a query without a question is FORMERR")
def test_a_cookie_by_itself() -> None:
    """Without a question, a client cookie gets a server cookie, and a bad server cookie BADCOOKIE and a good one."""
    reply = both(SERVER, alone((wire.OPTION_COOKIE, CLIENT)))
    cookie = reply.options[0].to_wire()
    assert (reply.rcode(), reply.question) == (dns.rcode.NOERROR, [])
    assert cookie is not None
    assert both(SERVER, alone((wire.OPTION_COOKIE, cookie))).rcode() == dns.rcode.NOERROR
    bad = both(SERVER, alone((wire.OPTION_COOKIE, cookie[:-1] + b"?")))
    assert bad.rcode() == dns.rcode.BADCOOKIE
    assert bad.options[0].to_wire() == cookie
    for packet, server in [
        (alone(), SERVER),
        (alone((wire.OPTION_NSID, b"")), SERVER),
        (alone((wire.OPTION_COOKIE, bytes(7))), SERVER),
        (alone((wire.OPTION_COOKIE, CLIENT)), PLAIN),
    ]:
        assert both(server, packet).rcode() == dns.rcode.FORMERR


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tcp", [False, True])
def test_both_ways_offer_everything_alike(name: str, tcp: bool) -> None:
    """A server that offers all there is to offer replies the same by the short way and the full one."""
    assert [one.name for one in fields(ServerOptions) if getattr(EVERYTHING, one.name) == one.default] == []
    server = Answerer(router(), locate, Counts(), options=EVERYTHING)
    for options in ([], [(wire.OPTION_NSID, b"")], [(wire.OPTION_NSID, b""), (wire.OPTION_COOKIE, CLIENT)]):
        both(server, asked(*options, name=name), tcp=tcp)


def test_options_come_beside_the_client_subnet() -> None:
    """Everything asked for comes back at once."""
    subnet = dns.edns.ECSOption("10.1.2.0", 24).to_wire() or b""
    options = [(8, subnet), (10, CLIENT), (3, b""), (11, b""), (12, bytes(9))]
    found = returned(asked(*options), tcp=True)
    assert list(found) == [8, 3, 10, 11]


@pytest.mark.rfc("4892", "3", "a server tells its identifier, and its version only if it is meant to")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("id.server", "fra-1"),
        ("HOSTNAME.bind", "fra-1"),
        ("version.bind", "gtm 1.0"),
        ("version.server", "gtm 1.0"),
    ],
)
@pytest.mark.parametrize("rdtype", ["TXT", "ANY"])
def test_chaos(name: str, text: str, rdtype: str) -> None:
    """The names of class CHAOS are answered with what the server is meant to tell, else refused."""
    reply = both(SERVER, asked((wire.OPTION_NSID, b""), name=name, rdclass="CH", rdtype=rdtype))
    assert reply.answer[0].to_text() == f'{name}. 0 CH TXT "{text}"'
    assert reply.flags & dns.flags.AA
    assert reply.options[0].to_wire() == b"fra-1"
    assert both(SERVER, dns.message.make_query(name, "TXT", "CH").to_wire()).edns == -1
    assert both(PLAIN, asked(name=name, rdclass="CH", rdtype=rdtype)).rcode() == dns.rcode.REFUSED
    assert both(SERVER, asked(name=name, rdclass="CH", rdtype="A")).rcode() == dns.rcode.REFUSED
    assert both(SERVER, asked(name=f"x.{name}", rdclass="CH", rdtype=rdtype)).rcode() == dns.rcode.REFUSED


@pytest.mark.parametrize("options", [{"nsid": bytes(256)}, {"version": bytes(256)}])
def test_texts_that_are_too_long(options: dict[str, bytes]) -> None:
    """A name or version that fits no character string is an error."""
    with pytest.raises(ValueError, match="at most 255 bytes"):
        ServerOptions(**options)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=45))), st.booleans())
def test_any_options(options: list[tuple[int, bytes]], tcp: bool) -> None:
    """Replies hold only options that were asked for, each once."""
    try:
        _, data = reply_options(options, RESOLVER, ServerOptions(b"x", b"", 10.0, COOKIES), tcp=tcp)
    except wire.MalformedError:
        return
    codes = [code for code, _ in wire.options(data)]
    assert set(codes) <= {code for code, _ in options}
    assert len(codes) == len(set(codes))
    assert reply_options(options, RESOLVER, NO_OPTIONS, tcp=tcp) == (None, b"")


@pytest.mark.rfc("1996", "3", "NOTIFY to a server that is nobody's secondary is NOTIMP")
@pytest.mark.rfc("2136", "3", "UPDATE to a server without dynamic update is NOTIMP")
@pytest.mark.rfc("8490", "5.1.1", "DSO to a server without it is NOTIMP")
@pytest.mark.rfc("8906", "3.1.4", "unknown opcodes are NOTIMP")
@pytest.mark.rfc("6895", "2.1", "RD and the other bits of queries are clear in replies to other operations")
@pytest.mark.parametrize("opcode", range(1, 16))
@pytest.mark.parametrize("flags", [0x0000, 0x0100, 0x07B0])
def test_opcodes(opcode: int, flags: int) -> None:
    """Whatever is no query is not implemented, whatever its sections and flags hold, over either transport."""
    packet = bytearray(query("demo.test", "SOA"))
    packet[2:4] = (opcode << 11 | flags).to_bytes(2)
    for data in (bytes(packet), bytes(packet[:12]), bytes(packet) + b"\xff" * 40):
        replies = [SERVER.answer(data, RESOLVER, tcp=tcp, draw=0.5) for tcp in (False, True)]
        replies += [SERVER.answer_fully(data, RESOLVER, tcp=False, draw=0.5), SERVER.udp(data, RESOLVER)]
        assert {reply and reply[2:4] for reply in replies} == {bytes((0x80 | opcode << 3, wire.NOTIMP))}
