"""Upload a converted folder to the Hugging Face hub."""

from pathlib import Path

from convert import atomic_output


def upload(folder: Path, name: str, private: bool = False) -> str:
    """Upload a finished conversion, creating the repository if needed; return its address.

    The hub is HF_ENDPOINT's or the public one, the token HF_TOKEN or the saved login. `private`
    hides a new repository. Raise ValueError if the hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    done = atomic_output.read_record(folder)
    if done is None:
        raise ValueError(f"{folder} is not a finished conversion, so it is not uploaded.")
    if not get_token():
        raise ValueError(f"{name} needs a token: set HF_TOKEN, or log in with `hf auth login`.")
    api = HfApi()
    step = done["steps"][-1]
    try:
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message=f"Step {step}")
    except HFValidationError as error:
        raise ValueError(f"--push_to_hub {name} is not of the form user/name.") from error
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{folder} is converted, but the hub rejected {name}: {reason}") from error
    return f"{api.endpoint}/{name}"
