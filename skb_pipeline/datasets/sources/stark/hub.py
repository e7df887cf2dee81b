"""Download of STaRK's files from the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from skb_pipeline.datasets.sources.stark.layout import HUB_REPOSITORY, Flavour


def download(folder: Path, flavour: Flavour, revision: str) -> None:
    """Get graph and questions of one data set into ``folder``, laid out as on the hub.

    An interrupted download goes on where it stopped, progress is shown on a terminal, and what is there already is
    not fetched again.

    Args:
        revision: commit, tag or branch of the data set's repository.

    Raises:
        huggingface_hub.errors.HfHubHTTPError, OSError: the hub cannot be reached or has no such revision.
    """
    from huggingface_hub import snapshot_download

    snapshot_download(
        HUB_REPOSITORY,
        repo_type="dataset",
        revision=revision,
        local_dir=folder,
        allow_patterns=[f"skb/{flavour}/processed.zip", f"qa/{flavour}/stark_qa/*.csv", f"qa/{flavour}/split/*.index"],
    )
