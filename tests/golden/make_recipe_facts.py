"""Write recipe_facts.json: what every recipe says to upstream's trainer.

bash launch/upstream.sh DIR && python tests/golden/make_recipe_facts.py DIR/t5x
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from golden import recipe_facts  # noqa: E402


def main(upstream: str) -> None:
    """Ask the trainer of a checkout."""
    found = recipe_facts.of(recipe_facts.recipes(), pathlib.Path(upstream).resolve())
    text = json.dumps(found, indent=1, sort_keys=True)
    (HERE / "recipe_facts.json").write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
