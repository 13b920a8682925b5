"""launch/restore_diacritics.sh reads runs of this machine; tests/tasks has its other tests."""

import pytest

from fakes.shell import LAUNCH, bash, sentence


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "https"])
def test_any_address_is_to_be_copied_first(scheme, tmp_path):
    run = f"{scheme}://bucket/my_run"
    for name in (run, f"{run}/checkpoint_7/"):
        said = sentence(bash(LAUNCH / "restore_diacritics.sh", name, cwd=tmp_path))
        assert f"{name} is not on this machine: copy " in said
        assert said.endswith(" and name runs/my_run here.")
        assert f"'{run}'" in said
        assert ("gcloud" in said) == (scheme == "gs")
