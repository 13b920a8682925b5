"""A corpus is read from a copy of its configuration and revision, and from no other."""

import json

import pytest

from tasks.io import mirrored

COMMIT = "0123456789" * 4


@pytest.fixture
def copy(tmp_path):
    """Gives a folder whose manifest has these entries; without any it has no manifest."""

    def made(**entries):
        if entries:
            manifest = {"corpus": "user/name", "commit": COMMIT, **entries}
            (tmp_path / mirrored.MANIFEST).write_text(json.dumps(manifest))
        return str(tmp_path)

    return made


def test_a_corpus_without_a_copy_has_none(copy):
    folders = {"user/name/ces": copy(), "user/other": copy()}
    assert mirrored.folder(folders, "user/name", None, None) is None
    assert mirrored.folder(folders, "user/name", "slk", None) is None


@pytest.mark.parametrize("name", ["user/name", "user/name/ces"])
def test_another_configuration_is_never_read(copy, name):
    folders = {name: copy(config="ces", revision=None)}
    assert mirrored.folder(folders, "user/name", "ces", None) == folders[name]
    if name == "user/name":
        for other in ("slk", None):
            with pytest.raises(ValueError, match=rf"holds configuration 'ces' .*, not {other!r}:"):
                mirrored.folder(folders, "user/name", other, None)
    misnamed = {"user/name/slk": folders[name]}
    with pytest.raises(ValueError, match="configuration 'ces' of 'user/name', not 'slk': copy"):
        mirrored.folder(misnamed, "user/name", "slk", None)


@pytest.mark.parametrize("entries", [{}, {"files": {}}, {"corpus": "a.jsonl", "config": None}])
def test_a_copy_that_does_not_name_its_configuration_needs_it_in_the_setting(copy, entries):
    folder = copy(**entries)
    with pytest.raises(ValueError, match=r"if it is 'ces', name it for 'user/name/ces'"):
        mirrored.folder({"user/name": folder}, "user/name", "ces", None)
    assert mirrored.folder({"user/name/ces": folder}, "user/name", "ces", None) == folder
    assert mirrored.folder({"user/name": folder}, "user/name", None, None) == folder


def test_another_revision_is_never_read(copy):
    folders = {"user/name": copy(config=None, revision="v1")}
    for same in ("v1", COMMIT, None):
        assert mirrored.folder(folders, "user/name", None, same) == folders["user/name"]
    with pytest.raises(ValueError, match=rf"at commit {COMMIT}, not at 'v2': copy that one"):
        mirrored.folder(folders, "user/name", None, "v2")
