"""The push of an exported model to the Hugging Face Hub."""

import logging
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError

from ngrpo.errors import SettingError, first_line
from ngrpo.utils.hub_access import is_repository_name

log = logging.getLogger(__name__)

_REFUSED = (401, 403)


@dataclass(frozen=True)
class HubRepository:
    """Where a model is pushed to.

    Attributes:
        name: ``user/name``.
        private: what a repository that is made anew is; one that is there stays as it is.
    """

    name: str
    private: bool = True

    def check(self, setting: str) -> None:
        """Finds what would fail at the end: the name's form, no token, a token that the Hub does not know.

        A Hub that does not answer now may do so at the end, so it is warned of only.

        Args:
            setting: that gives the name, for messages.

        Raises:
            SettingError: it cannot work.
        """
        said = f"{setting}={self.name}"
        if not is_repository_name(self.name):
            raise SettingError(f"{said} is no name of a repository on the Hub; give user/name.")
        if constants.HF_HUB_OFFLINE:
            raise SettingError(f"{said} pushes to the Hub, and HF_HUB_OFFLINE is set; take one of them out.")
        if get_token() is None:
            raise SettingError(f"{said} needs a token of the Hub; run hf auth login, or set HF_TOKEN.")
        try:
            HfApi().whoami()
        except HfHubHTTPError as error:
            if error.response is not None and error.response.status_code in _REFUSED:
                raise SettingError(
                    f"{said} needs a token of the Hub, and it does not accept this one; run hf auth login, or set "
                    "HF_TOKEN."
                ) from error
            self._warn_of(error)
        except Exception as error:  # httpx's or requests', by the version of huggingface_hub
            self._warn_of(error)

    def _warn_of(self, error: Exception) -> None:
        why = first_line(error)
        log.warning("%s does not answer now (%s); pushing to %s may fail", constants.ENDPOINT, why, self.name)

    def push(self, folder: Path) -> str:
        """Makes the repository unless it is there, uploads the folder in one commit, and returns the address.

        Raises:
            Exception: whatever huggingface_hub and its HTTP client raise.
        """
        api = HfApi()
        url = api.create_repo(self.name, private=self.private, exist_ok=True)
        api.upload_folder(repo_id=self.name, folder_path=folder, commit_message="Upload a model trained with ngrpo")
        return str(url)

    def command(self, folder: Path) -> str:
        """Returns the command that pushes a folder (again)."""
        return f"hf upload {self.name} {folder} . {'--private' if self.private else '--no-private'}"
