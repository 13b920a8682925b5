"""A model to start from is of the family that it trains as."""

import pytest

from tasks.scaffold import starting_model

CASES = {
    "T5Gemma2": starting_model.T5GEMMA2,
    "ModernBert": starting_model.MODERNBERT,
    "Transformer": starting_model.T5,
}


@pytest.mark.parametrize("module", CASES)
def test_a_run_that_replaced_a_network_is_of_the_family_that_it_trains(tmp_path, module):
    """A recipe may include that of another network, whose sizes then stay in its config.gin."""
    (tmp_path / "checkpoint_5").mkdir()
    lines = [f"network.{name}Config.vocab_size = 9" for name in ("T5", "T5Gemma2", "ModernBert")]
    lines.append(f"models.Model.module = @network.{module}()")
    (tmp_path / "config.gin").write_text("\n".join(lines))
    assert starting_model.open_model(str(tmp_path)).family is CASES[module]
