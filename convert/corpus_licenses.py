"""The licences of the corpora that a model card names, as their pages on the hub give them."""

from collections.abc import Iterable

MISSING = "its page names no licence, so ask its authors"
_TIMEOUT_S = 10.0


def look_up(corpora: Iterable[str]) -> dict[str, str]:
    """Return the licence of each corpus on the hub, or a clause on why none is known."""
    return {name: _of(name) for name in corpora}


def _of(name: str) -> str:
    import huggingface_hub

    try:
        found = huggingface_hub.HfApi().dataset_info(name, timeout=_TIMEOUT_S)
    except Exception as error:  # offline, private, absent, or no answer: the card says so
        return f"its licence could not be looked up ({type(error).__name__})"
    given = found.card_data and found.card_data.license
    return ", ".join([given] if isinstance(given, str) else given or []) or MISSING
