"""The check of names and docstrings finds what it is for, and nothing else."""

from __future__ import annotations

import pytest

from tests.check_words import Offence, judge, offences


def _kinds(text: str, other: str = "") -> list[str]:
    return [f"{one.kind} {one.name}" for one in sorted(offences({"gtm/a.py": text, "gtm/b.py": other}))]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("See above.", "pointer"),
        ("See `Gate.renew`.", "pointer"),
        ("As `Picker` has it.", "pointer"),
        ("Likewise.", "pointer"),
        ("By whom.", "riddle"),
        ("As it reports.", "riddle"),
        ("Whose column it is.", "riddle"),
        ("Of its load reports.", "riddle"),
        ("It said that it is there, and control has written it down.", None),
        ("The region's name.", None),
        ("Free slots.", None),
        ("Send SIGTERM.", None),
        ("What a client may ask of an edge, by its own word alone.", None),
    ],
)
def test_docstrings(said: str, kind: str | None) -> None:
    """Of functions, classes and fields alike."""
    expected = [f"{kind} A: {said}", f"{kind} f: {said}"] if kind else []
    text = f'def f() -> None:\n    """{said}"""\n\n\nclass A:\n    """A class of its own."""\n\n    x: int = 1\n    """{said}"""\n'
    assert _kinds(text) == expected


def test_names_of_classes() -> None:
    """Public ones, of modules."""
    first = (
        "class Answer:\n    pass\n\n\nclass _Own:\n    pass\n\n\nclass A:\n    class Inner:\n        pass\n"
    )
    second = (
        "class Answer:\n    pass\n\n\nclass _Own:\n    pass\n\n\nclass B:\n    class Inner:\n        pass\n"
    )
    assert _kinds(first, second) == ["twice Answer", "twice Answer"]


def test_methods_without_docstrings() -> None:
    """Those that override something or are a parser's callbacks need none."""
    methods = "    def run(self) -> None: ...\n    def on_body(self) -> None: ...\n    def _own(self) -> None: ...\n"
    assert _kinds(f"class A:\n{methods}") == ["missing A.run"]
    assert _kinds(f"class A(Protocol):\n{methods}") == ["missing A.run"]
    assert _kinds(f"class A(asyncio.Protocol):\n{methods}") == []
    assert _kinds(f"class A(Generic[T], Base):\n{methods}") == []
    assert _kinds(f"class _A:\n{methods}") == []


def test_the_list_only_gets_shorter() -> None:
    """What is known is let pass; what is new is told with its place; what is mended has to leave the list."""
    found = offences({"gtm/a.py": 'def f() -> None:\n    """By whom."""\n'})
    (offence,) = found
    assert offence == Offence("riddle", "gtm/a.py", "f: By whom.")
    assert judge(found, {str(offence)}) == []
    (said,) = judge(found, set())
    assert said.startswith("gtm/a.py:2: f: By whom.: the docstring cannot be understood")
    (said,) = judge({}, {str(offence)})
    assert "offend no more" in said
