"""What a request is expected to be, by the kind of what is in it: docs/admission.md's table as a model, random requests, and those of clients that would gain."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.config import checked
from gtm.balancer.wire.bodies import BodyRules, kind_of, read_strictly
from gtm.balancer.wire.endpoints import target_of
from gtm.balancer.wire.estimate import Media, body_tokens, form_tokens, image_tokens, prompt_tokens
from gtm.balancer.wire.facts import read_facts
from gtm.balancer.wire.heads import RequestHead, read_head
from tests.effort import examples

PHOTO, PDF, VIDEO = 1600, 16_384, 16_384
"""docs/admission.md: a picture whose size is not known, a PDF and a video at the most."""


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _noise(size: int) -> bytes:
    """Bytes that are of no format that is known."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def _png(width: int, height: int, size: int = 1000) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + _noise(size)


def _gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + _noise(100)


def _jpeg(width: int, height: int, exif: int = 0) -> bytes:
    """With a preview in its EXIF, which is a JPEG, too."""
    preview = b"Exif\0\0" + b"\xff\xd8\xff\xc0\0\x11\x08\0\1\0\1" + _noise(exif)
    app = b"\xff\xe1" + struct.pack(">H", len(preview) + 2) + preview
    table = b"\xff\xc4\0\x04ab"
    return b"\xff\xd8" + app + table + b"\xff\xc2\0\x11\x08" + struct.pack(">HH", height, width) + _noise(100)


def _webp(kind: bytes, width: int, height: int) -> bytes:
    if kind == b"VP8X":
        body = b"\0" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + body + _noise(100)


@pytest.mark.parametrize(
    "begin",
    [
        _png(1000, 750),
        _gif(1000, 750),
        _jpeg(1000, 750),
        _jpeg(1000, 750, 60_000),
        *(_webp(kind, 1000, 750) for kind in (b"VP8X", b"VP8L", b"VP8 ")),
    ],
    ids=["png", "gif", "jpeg", "jpeg with EXIF", "webp", "webp lossless", "webp lossy"],
)
def test_a_picture_says_its_size(begin: bytes) -> None:
    """A token for 750 pixels, as Anthropic's documents have it."""
    assert image_tokens(begin) == 1000
    assert prompt_tokens(json.dumps(_chat(_openai(begin))).encode()) < 1000 + 100


@pytest.mark.parametrize(
    ("begin", "tokens"),
    [
        (_png(1, 1), 85),
        (_png(0, 0), PHOTO),
        (_png(8000, 6000), PHOTO),
        (_png(2**32 - 1, 2**32 - 1), PHOTO),
        (b"", PHOTO),
        (_png(10, 10)[:20], PHOTO),
        (b"\xff\xd8" + b"\xff\xe0\0\x02" * 5000 + _jpeg(750, 100)[2:], PHOTO),
        (b"\xff\xd8" + b"\xff\xe0\0\x02" * 90 + _jpeg(750, 100)[2:], 100),
        (b"\xff\xd8\xff\xe0\0\0" * 100, PHOTO),
        (_noise(1000), PHOTO),
    ],
)
def test_what_a_picture_is_at_the_least_and_at_the_most(begin: bytes, tokens: int) -> None:
    """Whatever it says, or says not."""
    assert image_tokens(begin) == tokens
    assert image_tokens(begin, Media(image_tokens=700)) == min(tokens, 700)


# --- parts, as the APIs have them ---


def _url(kind: str, raw: bytes) -> str:
    return f"data:{kind};base64,{_base64(raw)}"


def _openai(raw: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": _url("image/jpeg", raw), "detail": "high"}}


def _anthropic(raw: bytes, kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": "image/png", "data": _base64(raw)}}


def _chat(*parts: Any) -> list[Any]:
    return [{"role": "system", "content": "be brief"}, {"role": "user", "content": list(parts)}]


RAW = _noise(300_000)
PARTS: dict[str, tuple[dict[str, Any], int]] = {
    "OpenAI's picture": (_openai(RAW), PHOTO),
    "OpenAI's picture, as a text": ({"type": "image_url", "image_url": _url("image/png", RAW)}, PHOTO),
    "a picture elsewhere": (
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        PHOTO,
    ),
    "a picture of OpenAI's responses": ({"type": "input_image", "image_url": _url("image/png", RAW)}, PHOTO),
    "a picture by its number": ({"type": "input_image", "file_id": "file-1"}, PHOTO),
    "Anthropic's picture": (_anthropic(RAW), PHOTO),
    "Anthropic's picture elsewhere": (
        {"type": "image", "source": {"type": "url", "url": "https://x.example"}},
        PHOTO,
    ),
    "a small picture": (_openai(_png(300, 250, 100_000)), 100),
    "a recording": (
        {"type": "input_audio", "input_audio": {"data": _base64(RAW), "format": "wav"}},
        len(RAW) // 1600,
    ),
    "vLLM's recording": (
        {"type": "audio_url", "audio_url": {"url": _url("audio/ogg", RAW)}},
        len(RAW) // 1600,
    ),
    "vLLM's video": ({"type": "video_url", "video_url": {"url": _url("video/mp4", RAW)}}, VIDEO),
    "OpenAI's PDF": (
        {"type": "file", "file": {"filename": "a.pdf", "file_data": _url("application/pdf", RAW)}},
        PDF,
    ),
    "a PDF of OpenAI's responses": (
        {"type": "input_file", "file_data": _url("application/pdf", RAW[:3000])},
        750,
    ),
    "Anthropic's PDF": (_anthropic(RAW, "document"), PDF),
    # google-gemini/gemini-cli#17923: a tool's result has pictures, and their base64 was counted as text.
    "a tool's picture": (
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "text", "text": "a"}, _anthropic(RAW)],
        },
        PHOTO,
    ),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("slashes", ["/", "\\/"], ids=["plain", "escaped"])
def test_parts_count_by_their_kind(name: str, slashes: str) -> None:
    """And the JSON around them by its length. PHP escapes each slash."""
    part, tokens = PARTS[name]
    raw = json.dumps(_chat(part)).replace("/", slashes).encode()
    assert tokens <= prompt_tokens(raw) <= tokens + 120


@pytest.mark.parametrize("more", range(4))
def test_a_picture_s_size_is_found_behind_escapes(more: int) -> None:
    """JPEGs begin with a slash in base64, which some encoders escape, wherever the base64 is cut."""
    small = json.dumps(_chat(_openai(_jpeg(750, 100, more)))).replace("/", "\\/").encode()
    assert 100 <= prompt_tokens(small) < 200


def _head(path: bytes, length: int, kind: bytes = b"application/json") -> RequestHead:
    headers = [(b"host", b"a"), (b"content-type", kind), (b"content-length", b"%d" % length)]
    return read_head(b"POST", path, "1.1", headers, keep_alive=True)


def _expected(path: bytes, body: bytes, kind: bytes = b"application/json") -> int:
    """By whoever reads it: for hints, or where limits go by it, which is the same."""
    head = _head(path, len(body), kind)
    found = read_strictly(
        head,
        kind_of(head, target_of(head.method, head.target), BodyRules(False)),
        body,
        BodyRules(False),
        None,
    ).input_tokens
    if kind == b"application/json":
        assert read_facts(head, body).input_tokens == found
    return found


REQUESTS: dict[str, tuple[bytes, dict[str, Any], int]] = {
    # BerriAI/litellm#32865: one picture in a request to /v1/responses was 633,912 tokens, of a budget of 50,000.
    "responses": (
        b"/v1/responses",
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": _url("image/png", RAW)}]}]},
        PHOTO,
    ),
    "a tool's picture in responses": (
        b"/v1/responses",
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [PARTS["a picture of OpenAI's responses"][0]]}]},
        PHOTO,
    ),
    "a screenshot": (
        b"/v1/responses",
        {"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": _url("image/png", RAW)}}]},
        PHOTO,
    ),
    # agentscope-ai/QwenPaw#6968: a photo of 2 MB was 700,000 tokens.
    "two photos": (b"/v1/messages", {"messages": _chat(_anthropic(_noise(2_000_000)), _anthropic(RAW))}, 2 * PHOTO),
    "Ollama's": (
        b"/api/chat",
        {"messages": [{"role": "user", "content": "what is this?", "images": [_base64(_png(750, 100, 500_000))]}]},
        100,
    ),
    "vLLM's score": (
        b"/score",
        {"queries": "a cat", "documents": {"content": [_openai(RAW), _openai(RAW)]}},
        2 * PHOTO,
    ),
    "tools count, and instructions": (
        b"/v1/responses",
        {"input": "hi", "tools": [{"x": "y" * 4000}], "instructions": "z" * 4000},
        2000,
    ),
    "Anthropic's system": (b"/v1/messages", {"messages": [], "system": [{"type": "text", "text": "z" * 4000}]}, 1000),
    "texts to embed": (b"/v1/embeddings", {"input": ["x" * 396] * 2000}, 200_000),
    "numbers to embed": (b"/v1/embeddings", {"input": [[10_000] * 500] * 4}, 3500),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_count_by_their_kind(name: str) -> None:
    """As they come to a balancer."""
    path, body, tokens = REQUESTS[name]
    assert tokens <= _expected(path, json.dumps({"model": "m", **body}).encode()) <= tokens * 1.02 + 120


FORM = b"multipart/form-data; boundary=XyZ"


def _form(*parts: tuple[str, bytes, bool]) -> bytes:
    found = b""
    for name, value, is_file in parts:
        more = b'; filename="a.bin"' if is_file else b""
        found += b'--XyZ\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (
            name.encode(),
            more,
            value,
        )
    return found + b"--XyZ--\r\n"


def test_forms_count_by_their_endpoint() -> None:
    """A recording by its bytes, each picture as one, fields as text.

    smg-project/smg#1397: of a transcription the prompt alone was counted, so that a large recording passed as one token; here it is neither that nor 5,000,000.
    """
    audio, images = b"/v1/audio/transcriptions", b"/v1/images/edits"
    recording = _form(("model", b"whisper", False), ("file", bytes(20_000_000), True))
    assert 12_500 <= _expected(audio, recording, FORM) <= 12_600
    spoken = _form(
        ("model", b"whisper", False), ("prompt", b"x" * 400_000, False), ("file", bytes(1600), True)
    )
    assert 100_000 <= _expected(audio, spoken, FORM) <= 100_100
    pictures = _form(("model", b"m", False), *[("image[]", bytes(900_000), True)] * 3)
    assert 3 * PHOTO <= _expected(images, pictures, FORM) <= 3 * PHOTO + 200
    assert form_tokens(b"/v1/files", 40, [4000]) == 1010
    # Where nobody reads it: no less than its kind, and far from its length.
    assert read_facts(_head(audio, 20_000_000, FORM), b"").input_tokens == 12_500
    assert read_facts(_head(audio, 20_000_000), b"").input_tokens == 5_000_000


# --- random requests, by the page's sum ---

_TEXTS = st.text(max_size=40) | st.sampled_from(['"type": "image_url"', "data:image/png;base64,AAAA", "\\/"])


@st.composite
def _parts(draw: st.DrawFn) -> tuple[dict[str, Any], int, int]:
    """A part, the bytes of it that are base64, and the tokens that the page has for these."""
    raw = draw(
        st.binary(max_size=60) | st.builds(_png, st.integers(0, 3000), st.integers(0, 3000), st.just(9))
    )
    size, text = len(_base64(raw)), _base64(raw)
    pixels = int.from_bytes(raw[16:20]) * int.from_bytes(raw[20:24]) if raw[:4] == b"\x89PNG" else 0
    image = min(max(-(-pixels // 750), 85), 1600) if pixels else 1600
    decoded = size * 3 // 4
    nested = {"type": "tool_result", "content": [_anthropic(raw)]}
    made: list[tuple[dict[str, Any], int, int]] = [
        ({"type": "text", "text": draw(_TEXTS)}, 0, 0),
        (_openai(raw), size, image),
        (_anthropic(raw), size, image),
        (nested, size, image),
        ({"type": "input_audio", "input_audio": {"data": text, "format": "mp3"}}, size, decoded // 1600),
        ({"type": "video_url", "video_url": {"url": _url("video/mp4", raw)}}, size, VIDEO),
        ({"type": "input_file", "file_data": _url("application/pdf", raw)}, size, min(decoded // 4, PDF)),
        ({"type": "tool_use", "id": "t", "name": "f", "input": _openai(raw)}, 0, 0),
    ]
    return draw(st.sampled_from(made))


@settings(max_examples=examples(1500, 300), deadline=None)
@given(st.lists(st.lists(_parts(), max_size=4), max_size=4), st.sampled_from([None, 1]), st.booleans())
def test_a_request_is_the_sum_of_its_parts(turns: list[list[Any]], indent: int | None, escaped: bool) -> None:
    """All that is no base64 is text, wherever it stands and however the JSON is written."""
    messages = [{"role": "user", "content": [part for part, _, _ in parts]} for parts in turns]
    raw = json.dumps(messages, indent=indent).encode()
    left = sum(size for parts in turns for _, size, _ in parts)
    if escaped:
        slashes = sum(json.dumps(part).count("/") for parts in turns for part, _, _ in parts)
        raw = raw.replace(b"/", b"\\/")
        assert prompt_tokens(raw) <= (len(raw) - left) // 4 + sum(n for p in turns for _, _, n in p) + slashes
        return
    assert prompt_tokens(raw) == (len(raw) - left) // 4 + sum(
        tokens for parts in turns for _, _, tokens in parts
    )


# --- who would gain ---

HIDDEN = base64.b64encode(b"all that I want to say " * 20_000).decode()


def _turn(**more: Any) -> list[Any]:
    return [{"role": "user", **more}]


GAINS: dict[str, Any] = {
    "a text that looks like a picture": _turn(content=[{"type": "text", "text": "data:image/png;base64," + HIDDEN}]),
    "a message that does": _turn(content="data:image/png;base64," + HIDDEN),
    "a picture's member beside a text": _turn(content=[{"type": "text", "text": HIDDEN, "image_url": "data:image/png;base64,AA=="}]),
    "a picture with a text beside it": _turn(content=[{**_openai(b"a"), "text": HIDDEN}]),
    "arguments of a tool": _turn(content=[{"type": "tool_use", "name": "f", "input": {"type": "image_url", "image_url": {"url": "data:image/png;base64," + HIDDEN}}}]),
    "arguments as a text": _turn(tool_calls=[{"function": {"arguments": json.dumps(_openai(HIDDEN.encode()))}}]),
    "a picture that is no base64": _turn(content=[{"type": "image_url", "image_url": {"url": "data:image/svg+xml,<text>" + HIDDEN}}]),
    "a picture somewhere else": _turn(content=[{"type": "image_url", "image_url": {"url": "https://x/" + HIDDEN}}]),
    "a document that is text": _turn(content=[{"type": "document", "source": {"type": "text", "data": HIDDEN}}]),
    "a type of another kind": _turn(content=[{"type": "thinking", "source": {"type": "base64", "data": HIDDEN}}]),
    "a type with capitals": _turn(content=[{"type": "Image", "source": {"type": "base64", "data": HIDDEN}}]),
    "no type": _turn(content=[{"image_url": {"url": "data:image/png;base64," + HIDDEN}}]),
    "base64 with spaces": _turn(content=[{"type": "input_audio", "input_audio": {"data": HIDDEN + " and more"}}]),
    "Ollama's pictures with words": _turn(content="a", images=["what I say: " + HIDDEN]),
    "a list among messages": [_turn(content=[_openai(HIDDEN.encode())])],
}  # fmt: skip


@pytest.mark.parametrize("name", GAINS)
def test_text_counts_as_text(name: str) -> None:
    """Wherever a server may read it, and whatever it looks like."""
    raw = json.dumps(GAINS[name]).encode()
    assert prompt_tokens(raw) >= len(HIDDEN) // 4
    assert prompt_tokens(raw) >= len(raw) // 4 - 10


@pytest.mark.parametrize(
    "body",
    [
        b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%b"},"type":"text"}]}]',
        b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":"%b","url":"data:image/png;base64,AA=="}}]}]',
        b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="},"text":"%b"}]}]',
        b'[{"role":"user","content":"%b","content":[]}]',
    ],
)
def test_a_member_twice_is_text(body: bytes) -> None:
    """Readers take the last, or the first: what any of them may read counts."""
    raw = body % HIDDEN.encode()
    assert prompt_tokens(raw) >= len(HIDDEN) // 4


def test_text_in_a_file_is_text() -> None:
    """Three bytes for each four of base64; what says that it is a PDF counts up to its bound, and more only if the answer says so."""
    for kind in ("text/plain", "application/json", "text/markdown"):
        raw = json.dumps(_turn(content=[{"type": "input_file", "file_data": f"data:{kind};base64,{HIDDEN}"}]))
        assert prompt_tokens(raw.encode()) >= len(HIDDEN) * 3 // 4 // 4


def test_a_crowd_of_parts_is_text() -> None:
    """More than Python may look at; and what is no JSON, or nested."""
    part = json.dumps(_openai(_png(1, 1, 3000)))
    raw = ("[" + ",".join([part] * 9) + ",{}" * 10_000 + "]").encode()
    assert prompt_tokens(raw) == len(raw) // 4
    for odd in (b"[{", b'[{"content":[1]}]', b"{", b"[[]]", b'[{"type":1}]', b'[{"images":[1,"a b"]}]'):
        assert prompt_tokens(odd) == len(odd) // 4
        assert body_tokens(odd) == len(odd) // 4


@settings(max_examples=examples(1000, 200), deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "content", "image_url", "url", "source", "data", "images", "output", "file", "x"]
                ),
                inner
                | st.sampled_from(["image_url", "image", "base64", "file", "data:image/png;base64,AAAA"]),
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_nothing_is_below_nothing(value: Any) -> None:
    """Whatever is written: no part counts twice as base64, so that nothing is taken from what stands beside it."""
    raw = json.dumps(value).encode()
    kept = raw.replace(b"data:image/png;base64,AAAA", b"data:image/png;base64,")
    for count in (prompt_tokens, body_tokens):
        assert count(raw) >= len(kept) // 4


# --- settings ---


def test_the_file_says_what_counts() -> None:
    """Of `admission.media`."""
    media = {"image_tokens": 256, "file_tokens": 1000, "audio_bytes_per_token": 320}
    found = checked({"backends": [{"url": "http://a"}], "admission": {"media": media}}, "file", None)
    counts = found.admission.media
    raw: Callable[[Any], bytes] = lambda part: json.dumps(_chat(part)).encode()  # noqa: E731 - one line
    assert 256 <= prompt_tokens(raw(_openai(RAW)), counts) < 256 + 100
    assert 1000 <= prompt_tokens(raw(PARTS["vLLM's video"][0]), counts) < 1100
    assert len(RAW) // 320 <= prompt_tokens(raw(PARTS["a recording"][0]), counts) < len(RAW) // 320 + 100
    assert form_tokens(b"/v1/audio/translations", 0, [3200], counts) == 10
