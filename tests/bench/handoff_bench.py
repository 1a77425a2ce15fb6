"""What handoffs cost: `python tests/bench/handoff_bench.py [--rounds 5]`.

Processor time in microseconds, each the least of several rounds of one process, beside bare `cryptography` in the same run:
an answer of the edge's HTTP tier (without its server) to a known client, with `handoff: none` and `sign`; verifying; judging.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests import worlds

sys.path.insert(0, str(Path(__file__).parents[2]))

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gtm.core.handoff.claims import Claims
from gtm.core.handoff.judge import judge
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.handoff.verdict import Presented, Reuse, Seen
from gtm.core.model.services import Handoff
from gtm.geoip.address import parse_address
from gtm.handoff.jwt import HandoffSigner, made, parsed
from gtm.handoff.verifier import Verifier
from gtm.http.app import EdgeOptions
from tests.http.world import Edge, locate

HOST = [(b"host", b"web.demo.test")]
CLIENT = "192.0.2.77"


def least(work: Callable[[], object], rounds: int, count: int = 3000) -> float:
    """Microseconds of processor time of one call."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(count):
            work()
        best = min(best, (time.process_time() - began) / count * 1e6)
    return round(best, 1)


def edge(handoff: Handoff) -> Edge:
    """An edge whose services ask for handoffs or not."""
    found = Edge(EdgeOptions(open_lookups=True))
    found.load(change=lambda law: worlds.changed(law, "services", "web", handoff=handoff))
    found.handoffs.use("fra-1", KEY, (key_text(KEY.public),))
    return found


KEY = made()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    bare = Ed25519PrivateKey.from_private_bytes(KEY.private)
    public, content = bare.public_key(), b"x" * 420
    signature = bare.sign(content)
    found: dict[str, float] = {
        "bare_sign_us": least(lambda: bare.sign(content), rounds),
        "bare_verify_us": least(lambda: public.verify(signature, content), rounds),
    }
    query = f"/v1/route?service=web&client_ip={CLIENT}".encode()
    token = b""
    for handoff in Handoff:
        app = edge(handoff).app
        found[f"redirect_{handoff}_us"] = least(
            lambda app=app: app.answer_head("GET", b"/a?b=1", HOST, CLIENT, "1.1"), rounds
        )
        found[f"lookup_{handoff}_us"] = least(
            lambda app=app: app.answer_head("GET", query, [(b"host", b"x")], CLIENT, "1.1"), rounds
        )
        answer = app.answer_head("GET", query, [(b"host", b"x")], CLIENT, "1.1")
        assert answer is not None
        token = json.loads(answer.body).get("handoff", "").encode()
    verifier = Verifier(PublicKeys((PublicKey("fra-1", key_text(KEY.public)),), 1))
    claims = verifier.verify(token)
    assert isinstance(claims, Claims)
    once = HandoffSigner(KEY).sign(replace(claims, once=True))
    found["token_bytes"] = len(token)
    found["sign_us"] = least(lambda: HandoffSigner(KEY).sign(claims), 1)
    signer = HandoffSigner(KEY)
    found["sign_us"] = least(lambda: signer.sign(claims), rounds)
    found["parse_us"] = least(lambda: parsed(once), rounds)
    found["verify_us"] = least(lambda: verifier.verify(once), rounds)
    found["verify_again_us"] = least(lambda: verifier.verify(token), rounds)
    router = edge(Handoff.SIGN).current.router
    assert router is not None
    address = parse_address(CLIENT).packed
    seen = Seen(locate(address), address)
    for name, presented in (("", None), ("_handoff", Presented(claims, locate(address)))):
        told = seen if presented else replace(seen, service="web")
        found[f"judge{name}_us"] = least(
            lambda told=told, presented=presented: judge(
                router,
                claims.region,
                router.view.window,
                seen=told,
                presented=presented,
                used=lambda _: Reuse.NEW,
            ),
            rounds,
        )
    for name, value in found.items():
        print(f"{name:24} {value:8}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
