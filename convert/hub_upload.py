"""A converted folder on the Hugging Face hub.

push(Path("runs/ro_hf/checkpoint_1000"), "user/name")        # the page's address
"""

from pathlib import Path

from convert import atomic_output


def push(
    folder: Path,
    name: str,
    private: bool = False,
    endpoint: str | None = None,
    token: str | None = None,
) -> str:
    """Uploads a folder, making the repository where there is none; returns its address.

    Args:
      folder: a finished conversion.
      name: user/name.
      private: whether a new repository is hidden.
      endpoint: the hub's address; by default HF_ENDPOINT or the public hub.
      token: by default HF_TOKEN or the saved login.

    Raises:
      ValueError: without a token, without the right to write, or where the hub cannot be reached.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    done = atomic_output.record(folder)
    if done is None:
        raise ValueError(f"{folder} is not a finished conversion: it is not uploaded.")
    if not (token or get_token()):
        raise ValueError(f"{name} needs a token: set HF_TOKEN, or log in with `hf auth login`.")
    api = HfApi(endpoint=endpoint, token=token)
    step = done["steps"][-1]
    try:
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message=f"Step {step}")
    except HFValidationError as error:
        raise ValueError(f"--push_to_hub {name} is not of the form user/name.") from error
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"{folder} is converted, but the hub did not take {name}: {reason}"
        ) from error
    return f"{api.endpoint}/{name}"
