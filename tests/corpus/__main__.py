"""Ask the corpus and compare: see the package's page."""

from __future__ import annotations

import argparse
import json
import sys
from hashlib import sha256
from pathlib import Path

from .answers import HERE, SCENES, Scene, answered
from .questions import Call, Packet, Question

FILE = HERE / "answers.json"
COUNT = 100_000
BATCH = 500
"""Questions that one hash stands for."""


def hashes(scene: Scene, number: int, batches: int, dump: Path | None = None) -> list[str]:
    """A hash of every batch of a scene's answers."""
    found: list[str] = []
    digest = sha256()
    lines = []
    for count, (question, answer) in enumerate(answered(scene, 1000 + number, batches * BATCH), 1):
        digest.update(len(answer).to_bytes(4) + answer)
        if dump is not None:
            lines.append(f"{told(question)}\n    {answer!r}\n")
        if count % BATCH == 0:
            found.append(digest.hexdigest()[:16])
            digest = sha256()
    if dump is not None:
        (dump / f"{scene.name}.txt").write_text("".join(lines))
    return found


def told(question: Question) -> str:
    """A question in one line."""
    if isinstance(question, Packet):
        return f"packet {question.wire.hex()} from {question.client} {'tcp' if question.tcp else 'udp'} {question.draw}"
    if isinstance(question, Call):
        return f"{question.method} {question.path!r} {question.query!r} {question.headers} {question.body!r} {question.peer}"
    return f"explain {question.request}"


def main() -> int:
    """Ask; 1 if answers differ from those recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep the hashes of the answers given now")
    parser.add_argument("--dump", type=Path, help="write questions and answers into this folder")
    options = parser.parse_args()
    if options.dump is not None:
        options.dump.mkdir(parents=True, exist_ok=True)
    batches = COUNT // BATCH // len(SCENES)
    found = {scene.name: hashes(scene, number, batches, options.dump) for number, scene in enumerate(SCENES)}
    asked = batches * BATCH * len(SCENES)
    if options.record:
        FILE.write_text(json.dumps({"questions": asked, "batch": BATCH, "hashes": found}, indent=1) + "\n")
        print(f"recorded the answers to {asked:,} questions")
        return 0
    recorded = json.loads(FILE.read_text())["hashes"]
    other = {
        name: [
            place for place, pair in enumerate(zip(mine, recorded[name], strict=True)) if pair[0] != pair[1]
        ]
        for name, mine in found.items()
    }
    for name, places in other.items():
        if places:
            print(
                f"{name}: other answers in {len(places)} of {len(recorded[name])} batches of {BATCH}, the first is {places[0]}"
            )
    if any(other.values()):
        print(
            "to see them: python -m tests.corpus --dump FOLDER, here and in a checkout from before, and diff -r"
        )
        return 1
    print(f"{asked:,} questions: the same answers, byte for byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
