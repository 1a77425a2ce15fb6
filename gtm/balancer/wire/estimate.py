"""How many input tokens a request is expected to be, by the kind of what is in it: text by its length, pictures and recordings by rules of their own.

The base64 of a picture is no text: a photo of 700 KB would count 233,000 tokens, where models read about a thousand. So what stands as a picture, a recording or a file where an API puts
one (`_KINDS`) counts by `Media`, and whatever else by its bytes.

Laws, which tests/balancer/test_estimate.py holds:
  1. Nothing that a server may read as text counts for less than text: a payload is left out only where a part's type says that it is none, and its source that it is base64. Whatever is not
     understood, is written oddly, or is an argument of a tool, is text.
  2. The cost is linear in the bytes, most of it in C; `_MOST_ITEMS` bound what Python looks at.

It is an estimate: what the answer says (`gtm.balancer.wire.usage`) takes its place. Its inputs are texts and counts of bytes, so that whoever reads a body as it streams can ask, too.

Sources of the numbers:
  - pictures: a token for each 750 pixels, scaled down to about 1,600 (docs.anthropic.com, "Vision"); OpenAI's have up to 85 + 8 × 170 = 1,445 (platform.openai.com, "Images and vision");
    Qwen2.5-VL reads a token for each 784 pixels, by its settings up to 16,384
  - recordings: 10 tokens a second (OpenAI's audio models); Voxtral 12.5, Qwen2-Audio 25; at 128 kbit/s, 10 a second are one for 1,600 bytes
  - parts: OpenAI's and Anthropic's API references (2026-11); vLLM (`vllm/entrypoints/chat_utils.py`); Ollama (docs/api.md) for `images`
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterable
from enum import Enum, auto

import msgspec
from pydantic import Field

from gtm.documents.resources import Document

BYTES_A_TOKEN = 4
"""Of English text, by the rule of thumb of those who make tokenizers; learned costs correct it."""
LEAST_IMAGE = 85
"""Tokens of the smallest picture: OpenAI's base for each."""
PIXELS_A_TOKEN = 750
_MOST_ITEMS = 10_000
"""Objects in a text: one with more of them counts as text whole."""
_SHORT = 4096
"""Bytes of a text that is not looked into where it has no list of parts."""
_LOOKED_AT = 96 * 1024
"""Characters of base64 in which a picture's size is looked for: it stands behind a JPEG's EXIF, which has up to 64 KiB."""


class Media(Document):
    """What counts for a picture, a recording or a file.

    `image_tokens`: of a picture, at the most (by its pixels, if its first bytes say them). `file_tokens`: of a video or a PDF, at the most; and of a recording or file that is somewhere else.
    `audio_bytes_per_token`: bytes of a recording for each token.
    """

    image_tokens: int = Field(default=1600, ge=1, le=1_000_000)
    file_tokens: int = Field(default=16_384, ge=1, le=10_000_000)
    audio_bytes_per_token: int = Field(default=1600, ge=1, le=1_000_000)


MEDIA = Media()


class MediaKind(Enum):
    """Which kind of data a part of a message has, beside text."""

    IMAGE = auto()
    AUDIO = auto()
    VIDEO = auto()
    FILE = auto()


_KINDS: dict[str, tuple[MediaKind, str]] = {
    "image_url": (MediaKind.IMAGE, "image_url"),  # OpenAI's chat
    "input_image": (MediaKind.IMAGE, "image_url"),  # OpenAI's responses
    "computer_screenshot": (MediaKind.IMAGE, "image_url"),
    "image": (MediaKind.IMAGE, "source"),  # Anthropic's messages
    "input_audio": (MediaKind.AUDIO, "input_audio"),
    "audio_url": (MediaKind.AUDIO, "audio_url"),  # vLLM
    "video_url": (MediaKind.VIDEO, "video_url"),  # vLLM
    "file": (MediaKind.FILE, "file"),
    "input_file": (MediaKind.FILE, "file_data"),
    "document": (MediaKind.FILE, "source"),
}
"""By a part's `type`: what it is, and the member that has it."""

_ABSENT = msgspec.Raw(b"")


class _Item(msgspec.Struct):
    """A message, or a part of one. What is of another type makes the whole text one that is not understood."""

    type: str | None = None
    content: str | list[_Item | str] | _Item | None = None
    output: str | list[_Item | str] | _Item | None = None
    images: list[msgspec.Raw] | None = None
    # As they stand in JSON: base64 is long, and nobody needs another copy of it.
    image_url: msgspec.Raw = _ABSENT
    source: msgspec.Raw = _ABSENT
    input_audio: msgspec.Raw = _ABSENT
    audio_url: msgspec.Raw = _ABSENT
    video_url: msgspec.Raw = _ABSENT
    file: msgspec.Raw = _ABSENT
    file_data: msgspec.Raw = _ABSENT


class _Source(msgspec.Struct):
    """Where a part has what it is."""

    type: str | None = None
    url: msgspec.Raw = _ABSENT
    data: msgspec.Raw = _ABSENT
    file_data: msgspec.Raw = _ABSENT


class _Asked(msgspec.Struct):
    """Members of a body that has no messages, prompt or input, and may have parts in these: vLLM's `/score` and `/rerank`."""

    query: msgspec.Raw = _ABSENT
    queries: msgspec.Raw = _ABSENT
    documents: msgspec.Raw = _ABSENT
    data_1: msgspec.Raw = _ABSENT
    data_2: msgspec.Raw = _ABSENT


_ITEMS = msgspec.json.Decoder(list[_Item | str] | _Item)
_SOURCES = msgspec.json.Decoder(_Source)
_ASKED = msgspec.json.Decoder(_Asked)
_OBJECTS = re.compile(rb"\s*(?:\[\s*)?\{")
"""How a text begins that is an object, or a list of them."""
_OBJECT = re.compile(rb"\s*\{")
_DATA = re.compile(rb'"data:([a-z]+\\?/[a-z0-9.+-]+)(?:;[a-z0-9=._-]+){0,4};base64,', re.IGNORECASE)
"""How a `data:` URL begins that has base64 (RFC 2397). Some encoders of JSON write `\\/` for a slash."""
_BARE = re.compile(rb'"(?:[A-Za-z0-9+=_-]|\\?/)*+"')


def prompt_tokens(text: bytes, media: Media = MEDIA) -> int:
    """The tokens of a prompt as it stands in JSON: a list of messages, of parts or of texts, or a text.

    Args:
        text: the JSON.
        media: what counts for what is no text.
    """
    if len(text) < _SHORT and text.find(b"[", 1) < 0:  # nearly every chat: no list of parts
        return len(text) // BYTES_A_TOKEN
    left, more = (0, 0) if _crowded(text) else _media(text, media)
    return (len(text) - left) // BYTES_A_TOKEN + more


def body_tokens(body: bytes, media: Media = MEDIA) -> int:
    """The tokens of a body that has no messages, prompt or input: what stands in others as parts stand, as of `/score`, counts by its kind.

    Args:
        body: a JSON object.
        media: what counts for what is no text.
    """
    left = more = 0
    if not _crowded(body):
        try:
            asked = _ASKED.decode(body)
            for value in (asked.query, asked.queries, asked.documents, asked.data_1, asked.data_2):
                out, tokens = _media(value, media)
                left, more = left + out, more + tokens
        except ValueError:  # it is none
            pass
    return (len(body) - left) // BYTES_A_TOKEN + more


def form_tokens(path: bytes, fields: int, files: Iterable[int], media: Media = MEDIA) -> int:
    """The tokens of a form.

    Args:
        path: of the request's target.
        fields: bytes of all parts that are no files.
        files: bytes of each part that is one.
        media: what counts for what is no text.
    """
    kind = _kind_of(path)
    return fields // BYTES_A_TOKEN + sum(_of_size(kind, size, media) for size in files)


def unread_tokens(path: bytes, content_type: bytes, size: int, media: Media = MEDIA) -> int:
    """The tokens of a body that nobody reads here.

    Args:
        path: of the request's target.
        content_type: of its body, as sent.
        size: bytes of it.
        media: what counts for what is no text.
    """
    if content_type[:10].lower() == b"multipart/" and _kind_of(path) is not MediaKind.FILE:
        return _of_size(_kind_of(path), size, media)
    return size // BYTES_A_TOKEN


def _kind_of(path: bytes) -> MediaKind:
    """What files are that are sent to an endpoint."""
    if b"/audio/" in path:
        return MediaKind.AUDIO
    return MediaKind.IMAGE if b"/images/" in path else MediaKind.FILE


def _of_size(kind: MediaKind, size: int, media: Media) -> int:
    """The tokens of so many bytes, of which nothing else is known."""
    if kind is MediaKind.AUDIO:
        return size // media.audio_bytes_per_token
    if kind is MediaKind.IMAGE:
        return media.image_tokens
    if kind is MediaKind.VIDEO:
        return media.file_tokens
    return size // BYTES_A_TOKEN


def _crowded(text: bytes) -> bool:
    return len(text) > _MOST_ITEMS and text.count(b"{") > _MOST_ITEMS


def _media(text: bytes | msgspec.Raw, media: Media) -> tuple[int, int]:
    """What of a text is none: its bytes, and the tokens that count for these."""
    if not _OBJECTS.match(text):
        return 0, 0
    try:
        found = _ITEMS.decode(text)
    except ValueError:  # it has another form
        return 0, 0
    return _of_items(found, media)


def _of_items(found: str | list[_Item | str] | _Item, media: Media) -> tuple[int, int]:
    """The bytes of messages or parts that are no text, and the tokens that count for these."""
    left = more = 0
    for item in found if isinstance(found, list) else (found,):
        if isinstance(item, str):
            continue
        for inner in (item.content, item.output):
            if inner is not None and not isinstance(inner, str):
                out, tokens = _of_items(inner, media)
                left, more = left + out, more + tokens
        known = _KINDS.get(item.type) if item.type is not None else None
        if known is not None:
            out, tokens = _of_part(known[0], getattr(item, known[1]), media)
            left, more = left + out, more + tokens
        for text in item.images or ():
            if _BARE.fullmatch(text):  # as Ollama has pictures
                left += len(memoryview(text)) - 2
                more += image_tokens(_bytes_of(text, 1), media)
    return left, more


def _of_part(kind: MediaKind, said: msgspec.Raw, media: Media) -> tuple[int, int]:
    """Of a part: the bytes of it that are base64, and the tokens that count for them."""
    value, bare = said, False
    if _OBJECT.match(said):
        try:
            source = _SOURCES.decode(said)
        except ValueError:
            return 0, 0
        if source.type == "text":
            return 0, 0
        value = next((one for one in (source.url, source.file_data) if one is not _ABSENT), source.data)
        bare = value is source.data
    begun = _DATA.match(value)
    if begun is None and not (bare and _BARE.fullmatch(value)):
        # Somewhere else, or nothing that is understood: what is there is text.
        return 0, media.image_tokens if kind is MediaKind.IMAGE else media.file_tokens
    at = 1 if begun is None else begun.end()
    left = len(memoryview(value)) - at - 1
    size = left * 3 // 4
    if kind is MediaKind.IMAGE:
        return left, image_tokens(_bytes_of(value, at), media)
    if kind is MediaKind.FILE:
        plain = size // BYTES_A_TOKEN
        # A PDF is mostly fonts and pictures. Text that is sent so is text.
        is_text = begun is not None and not begun[1].lower().endswith(b"pdf")
        return left, plain if is_text else min(plain, media.file_tokens)
    return left, _of_size(kind, size, media)


def _bytes_of(value: msgspec.Raw, at: int) -> bytes:
    """The first bytes of what is base64 from there on."""
    text = bytes(memoryview(value)[at : at + _LOOKED_AT]).replace(b"\\/", b"/").rstrip(b'"')
    try:
        return a2b_base64(text[: len(text) & ~3])
    except Base64Error:
        return b""


def image_tokens(begin: bytes, media: Media = MEDIA) -> int:
    """The tokens of a picture.

    Args:
        begin: its first bytes.
        media: what counts for one at the most, and where they say no size.
    """
    size = _pixels(begin)
    if not size:
        return media.image_tokens
    return min(max(-(-size // PIXELS_A_TOKEN), LEAST_IMAGE), media.image_tokens)


def _pixels(begin: bytes) -> int:
    """The pixels of a picture, by the head of its file; 0: it says none that is known.

    PNG (RFC 2083 §4.1.1), GIF89a (§18), WebP (RFC 9649 §2.5-2.7), JPEG (ITU-T T.81 §B.2.2).
    """
    if begin.startswith(b"\x89PNG\r\n\x1a\n") and begin[12:16] == b"IHDR":
        return int.from_bytes(begin[16:20]) * int.from_bytes(begin[20:24])
    if begin[:6] in (b"GIF87a", b"GIF89a"):
        return int.from_bytes(begin[6:8], "little") * int.from_bytes(begin[8:10], "little")
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        return _webp(begin)
    return _jpeg(begin) if begin[:2] == b"\xff\xd8" else 0


def _webp(begin: bytes) -> int:
    kind = begin[12:16]
    if kind == b"VP8X":
        return (int.from_bytes(begin[24:27], "little") + 1) * (int.from_bytes(begin[27:30], "little") + 1)
    if kind == b"VP8L":
        bits = int.from_bytes(begin[21:25], "little")
        return ((bits & 0x3FFF) + 1) * ((bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        return (int.from_bytes(begin[26:28], "little") & 0x3FFF) * (
            int.from_bytes(begin[28:30], "little") & 0x3FFF
        )
    return 0


def _jpeg(begin: bytes) -> int:
    """The size in the frame's head, which stands behind segments of any number."""
    at = 2
    for _ in range(100):
        mark = begin[at : at + 4]
        if len(mark) < 4 or mark[0] != 0xFF:
            break
        if 0xC0 <= mark[1] <= 0xCF and mark[1] not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(begin[at + 5 : at + 7]) * int.from_bytes(begin[at + 7 : at + 9])
        at += 2 + int.from_bytes(mark[2:4])
    return 0
