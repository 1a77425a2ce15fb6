"""Which files of a folder are read as policy, and that every other one is named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.model.problems import PolicyError
from gtm.documents import policy_files, yamls
from gtm.documents.folders import check_references, load_folder, read_folder
from gtm.documents.policy_files import names_within
from gtm.documents.policy_files import policy_files as files_of
from gtm.nesting import MAX_DEPTH
from tests.effort import examples

CASES: list[dict[str, Any]] = json.loads(
    (
        Path(__file__).parents[2] / "deploy/terraform/provider/internal/provider/testdata/folders.json"
    ).read_text()
)
"""Folders, and what is read of them: `internal/provider/folders_test.go` holds Terraform's provider to the same ones."""

TENANTS = "tenants: [{name: %s}]\n"


def written(top: Path, case: dict[str, Any]) -> Path:
    """The folder of a case."""
    for name in case["folders"]:
        (top / name).mkdir(parents=True)
    for name, text in case["files"].items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    for name, target in case["links"].items():
        (top / name).symlink_to(target)
    return top


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["said"])
def test_folders(case: dict[str, Any], tmp_path: Path) -> None:
    """As `docs/policy.md` has it."""
    folder = read_folder(written(tmp_path, case))
    if case["wrong"]:
        assert any(case["wrong"] in str(problem) for problem in folder.problems), folder.problems
        return
    assert check_references(folder)[0] == []
    found = folder.found
    for part in ("policy", "expectations"):
        assert [str(file.relative_to(tmp_path)) for file in getattr(found, part)] == case[part]
    assert (found.passed, found.others) == (case["passed"], case["others"])
    assert len(folder.document().tenants) >= ("tenants: [{" in "".join(case["files"].values()))


_FILES = [
    *("a.yaml", "B.YML", "c.Json", "expect.yaml", "EXPECT.yml", "unexpected.yaml", "a b.yaml", "é.yaml"),
    *(".a.yaml", "a.yaml~", "#a.yaml#", "a.yaml.SWP", "b.yaml.bak", ".#a.yaml", "..data"),
    *("README", "a.yaml.txt", "yaml", "a.yam", "a\nb.yaml"),
]
_FOLDERS = ["rules", "x.yaml", ".git", "old~", "Z"]
_Tree = dict[str, Any]
TREES = st.recursive(
    st.dictionaries(st.sampled_from(_FILES), st.just(None), max_size=5),
    lambda inner: st.builds(
        lambda files, folders: {**files, **folders},
        st.dictionaries(st.sampled_from(_FILES), st.just(None), max_size=3),
        st.dictionaries(st.sampled_from(_FOLDERS), inner, max_size=3),
    ),
    max_leaves=6,
)


def model(tree: _Tree, above: str = "") -> Iterator[tuple[str, str]]:
    """The law in the words of the documents: what becomes of each file, in the order of names."""
    for name, below in sorted(tree.items()):
        path = above + name + "/" * (below is not None)
        hidden = name.startswith(".")
        editors = name.endswith(("~", ".swp", ".SWP", ".bak")) or (name[0] == name[-1] == "#")
        if hidden or editors:
            yield "passed", path
        elif below is not None:
            yield from model(below, path)
            if not below:
                yield "others", f"{path} (empty)"
        elif not name.lower().endswith((".yaml", ".yml", ".json")):
            yield "others", path
        elif name.lower().partition(".")[0] == "expect":
            yield "expectations", path
        else:
            yield "policy", path


def made(top: Path, tree: _Tree) -> None:
    """Such a tree on disk."""
    for name, below in tree.items():
        if below is None:
            (top / name).write_text("{}")
        else:
            (top / name).mkdir()
            made(top / name, below)


@settings(max_examples=examples(300), deadline=None)
@given(tree=TREES, links=st.lists(st.tuples(st.integers(0), st.integers(0)), max_size=4))
def test_trees(tree: _Tree, links: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every file of random trees is read, or named, or in a folder that is; with links to anywhere within them, each is read once."""
    top = tmp_path_factory.mktemp("tree")
    made(top, tree)
    found = files_of(top)
    said: dict[str, list[str]] = {"policy": [], "expectations": [], "passed": [], "others": []}
    for what, path in model(tree):
        said[what].append(path)
    assert [str(one.relative_to(top)) for one in found.policy] == said["policy"]
    assert [str(one.relative_to(top)) for one in found.expectations] == said["expectations"]
    assert (found.passed, found.others) == (said["passed"], said["others"])
    assert bool(found.problems) is (not said["policy"])
    notes = " ".join(found.notes())
    assert all(one in notes for one in said["others"])
    assert "\n" not in notes

    before = {os.path.realpath(one) for one in found.policy}
    everything = sorted(top.rglob("*"), key=str)
    for index, (where, to) in enumerate(links if everything else ()):
        folders = [top, *(one for one in everything if one.is_dir())]
        (folders[where % len(folders)] / f"link{index}.yaml").symlink_to(everything[to % len(everything)])
    after = [os.path.realpath(one) for one in files_of(top).policy]
    assert len(set(after)) == len(after)
    assert before <= {*after, *map(os.path.realpath, files_of(top).expectations)}


def test_a_configmap_is_loaded_once(tmp_path: Path) -> None:
    """influxdata/telegraf#4133: a mounted ConfigMap's files were loaded from `..data` and by their links."""
    data = tmp_path / "..2018_05_10_01_53_36.330728263"
    data.mkdir()
    (data / "gdpr.yaml").write_text(TENANTS % "clinic")
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "gdpr.yaml").symlink_to("..data/gdpr.yaml")
    folder = read_folder(tmp_path)
    assert [one.name for one in folder.document().tenants] == ["clinic"]
    assert [*folder.found.notes()] == [
        f"2 files were not read, being hidden or an editor's: {data.name}/, ..data/"
    ]


def test_a_folder_within_is_read(tmp_path: Path) -> None:
    """kernelci/kernelci-core#2859: files that were moved to a folder within were read no more, and nobody said so."""
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / "linux-pci.yaml").write_text(TENANTS % "pci")
    (tmp_path / "trees.yaml").write_text(TENANTS % "trees")
    folder = read_folder(tmp_path)
    assert {one.name for one in folder.document().tenants} == {"pci", "trees"}
    assert not [*folder.found.notes()]


def test_a_backup_overrides_nothing(tmp_path: Path) -> None:
    """mudler/LocalAI#9443, PelicanPlatform/pelican#2703: backups of editors and package managers were read over what is meant."""
    left = ["a.yaml.bak", "a.yaml~", "a.yaml.bak.20260420", "a.yaml.rpmsave", "a.yaml.dpkg-old"]
    for name in ("a.yaml", *left):
        (tmp_path / name).write_text(TENANTS % "a")
    folder = read_folder(tmp_path)
    assert check_references(folder)[0] == []
    assert sorted([*folder.found.passed, *folder.found.others]) == sorted(left)


def test_special_files(tmp_path: Path) -> None:
    """A pipe would be waited for, and a name may hold what a terminal obeys."""
    (tmp_path / "a.yaml").write_text(TENANTS % "a")
    os.mkfifo(tmp_path / "b.yaml")
    (tmp_path / "c\x1b[31m\udcff.txt").write_text("")
    folder = read_folder(tmp_path)
    assert [str(one) for one in folder.problems] == [f"{tmp_path}/b.yaml: is no regular file"]
    assert folder.found.others == ["c\\x1b[31m\\udcff.txt"]


def test_deep_folders(tmp_path: Path) -> None:
    """As deep as paths go, which is deeper than stacks."""
    folders = [f"{tmp_path}{'/d' * depth}" for depth in range(1, 1100)]
    for folder in folders:
        os.mkdir(folder)  # noqa: PTH102 - pathlib takes seconds for it
    file = Path(folders[-1], "a.yaml")
    file.write_text(TENANTS % "a")
    try:
        assert files_of(tmp_path).policy == [file]
    finally:  # which `rmtree` could not do
        file.unlink()
        for folder in reversed(folders):
            os.rmdir(folder)  # noqa: PTH106


def test_a_disk_is_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may have so many files and folders below it, and no more."""
    monkeypatch.setattr(policy_files, "MAX_ENTRIES", 40)
    for number in range(4):
        (tmp_path / f"{number}").mkdir()
        for name in range(9):
            (tmp_path / f"{number}" / f"{name}.yaml").write_text("tenants: []")
    assert read_folder(tmp_path).problems == []
    (tmp_path / "x.txt").write_text("")
    assert "more than 40 files" in str(read_folder(tmp_path).problems[0])
    with pytest.raises(OSError, match="more than 40"):
        names_within(tmp_path)


def test_who_writes_into_a_folder(tmp_path: Path) -> None:
    """Is told of what a policy would be read from, below it too."""
    assert names_within(tmp_path) == []
    (tmp_path / "rules").mkdir()
    for name in ("rules/A.YAML", "rules/expect.json", ".x.yaml", "notes.txt"):
        (tmp_path / name).write_text("#")
    assert names_within(tmp_path) == ["rules/A.YAML", "rules/expect.json"]
    assert names_within(tmp_path, expectations=False) == ["rules/A.YAML"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(300), deadline=None)
@given(_JSON, st.sampled_from([None, 0, 2, "\t"]), st.booleans(), st.booleans())
def test_json(value: Any, indent: int | str | None, ascii_only: bool, marked: bool) -> None:
    """A file of JSON says what JSON says, whatever YAML would make of it."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(errors="replace")
    [(read, marks)] = yamls.load_json(b"\xef\xbb\xbf" * marked + text)
    assert read == json.loads(text)
    assert repr(read) == repr(json.loads(text))
    assert marks.line(("a", 0)) >= 1


def test_json_by_line(tmp_path: Path) -> None:
    """What is wrong is found by its line, in JSON too."""
    text = '{\n "tenants": [\n  {"name": "a"},\n  {"name": "b", "display_name": "\\ud83d\\ude00", "wieght": 1}\n ]\n}'
    (tmp_path / "a.json").write_text(text)
    [problem] = read_folder(tmp_path).problems
    assert str(problem).startswith(f"{tmp_path}/a.json:4: tenants.b.wieght")
    for wrong, said in (
        ('{"tenants": [],\n "tenants": []}', "has the member `tenants` twice"),
        ("[" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH}"),
        ('{"tenants": NaN}', "`NaN` is no number"),
        ('{"tenants":\n x}', "line 2, column 2: not JSON"),
        ('{"tenants": ["\\ud83d"]}', "half a surrogate pair"),
    ):
        (tmp_path / "a.json").write_text(wrong)
        [problem] = read_folder(tmp_path).problems
        assert (problem.code, said in problem.message) == ("invalid_yaml", True), problem


def test_what_is_defined_twice_is_named_with_both_places(tmp_path: Path) -> None:
    """Each later one with the first, whatever files they are in."""
    (tmp_path / "a.yaml").write_text("tenants:\n- name: one\n- name: two\n")
    (tmp_path / "b.yaml").write_text("tenants:\n- name: two\n")
    with pytest.raises(PolicyError) as refused:
        load_folder(tmp_path)
    assert [(one.path, one.message) for one in refused.value.problems] == [
        (
            f"{tmp_path}/b.yaml:2: tenants.two",
            f"`two` is defined twice: here, and first at {tmp_path}/a.yaml:3",
        )
    ]
