"""Upload a converted folder to the Hugging Face hub."""

from pathlib import Path

from convert import atomic_output


def check_access(name: str) -> None:
    """Raise ValueError unless the token may write; nothing is written.

    `name` is user/name. The hub is HF_ENDPOINT's or the public one, the token HF_TOKEN or the saved
    login. What only an upload can show, a right to one repository, is left to `upload`.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(f"--push_to_hub {name} is not of the form user/name.") from error
    if name.count("/") != 1:
        raise ValueError(f"--push_to_hub {name} is not of the form user/name.")
    if not get_token():
        raise ValueError(
            f"There is no Hugging Face token, so nothing can be uploaded to {name}: set HF_TOKEN, "
            "or log in with `hf auth login`."
        )
    api = HfApi()
    try:
        user = api.whoami()
    except HfHubHTTPError as error:
        raise ValueError(
            f"The hub rejects your token ({_reason(error)}), so nothing can be uploaded to {name}: "
            "create one at https://huggingface.co/settings/tokens and set HF_TOKEN to it."
        ) from error
    except _errors() as error:
        raise RuntimeError(
            f"{api.endpoint} does not answer ({_reason(error)}), so nothing can be uploaded: "
            "connect this machine, or leave --push_to_hub out and upload the folder elsewhere."
        ) from error
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise ValueError(
            f"Your token may only read, so nothing can be uploaded to {name}: create one that may "
            "write at https://huggingface.co/settings/tokens and set HF_TOKEN to it."
        )


def upload(folder: Path, name: str, private: bool = False) -> str:
    """Upload a finished conversion, creating the repository if needed; return its address.

    `private` hides a new repository. Raise RuntimeError if the hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi

    done = atomic_output.read_record(folder)
    if done is None:
        raise ValueError(f"{folder} is not a finished conversion, so it is not uploaded.")
    api = HfApi()
    step = done["steps"][-1]
    try:
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message=f"Step {step}")
    except _errors() as error:
        raise RuntimeError(
            f"{folder} is converted, but the hub rejected {name}: {_reason(error)}"
        ) from error
    return f"{api.endpoint}/{name}"


def _errors() -> tuple[type[Exception], ...]:
    """Return what the hub's client raises; its HTTP library's errors are no OSError."""
    from huggingface_hub.errors import HfHubHTTPError

    return (OSError, *HfHubHTTPError.__bases__)


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
