"""Write recipe_facts.json: what every recipe says to upstream's trainer.

bash launch/upstream.sh DIR && python tests/golden/make_recipe_facts.py DIR/t5x

"usual" has the most frequent value of each fact that all recipes have, and each recipe its
differences from that. Each fact is one line.
"""

import collections
import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from golden import recipe_facts  # noqa: E402


def usual(recipes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the most frequent value of each fact that all recipes have."""
    values: dict[str, Any] = {}
    for name in set.intersection(*map(set, recipes.values())):
        texts = collections.Counter(json.dumps(facts[name]) for facts in recipes.values())
        values[name] = json.loads(texts.most_common(1)[0][0])
    return values


def text_of(recipes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the file's text for the flat facts of each recipe."""
    shared = usual(recipes)
    parts = {"usual": shared}
    for recipe, facts in recipes.items():
        parts[recipe] = {k: v for k, v in facts.items() if k not in shared or shared[k] != v}
    block = lambda facts: ",\n".join(f'  "{k}": {json.dumps(facts[k])}' for k in sorted(facts))
    return "{\n" + ",\n".join(f' "{k}": {{\n{block(v)}\n }}' for k, v in parts.items()) + "\n}\n"


def main(upstream: str) -> None:
    """Ask the trainer of a checkout."""
    facts = recipe_facts.ask(recipe_facts.recipes(), pathlib.Path(upstream).resolve())
    (HERE / "recipe_facts.json").write_text(text_of(facts))


if __name__ == "__main__":
    main(sys.argv[1])
