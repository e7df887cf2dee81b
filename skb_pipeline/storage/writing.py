"""One writer at a time for each dataset: a lock that a run holds for as long as it lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from skb_pipeline.errors import UserError
from skb_pipeline.storage.atomic import LockedError, file_lock, lock_holder

LOCK = "writing.lock"
_PATIENCE_S = 0.5
"""A reader that asks who writes holds the lock for an instant."""


class DatasetBusyError(UserError, RuntimeError):
    """A run of the dataset is going on."""


@contextmanager
def writing(folder: Path, run_id: str, *, waits: Callable[[str], None] | None = None) -> Iterator[None]:
    """Be the one that writes a dataset. The system frees the lock of a process that ends, however it ends.

    Nothing else is waited for under this lock, so that who waits for it gets it in the end.

    Args:
        folder: of the dataset in the store; made when absent.
        run_id: told to others that want to write.
        waits: wait for another run, as long as it takes; takes one line that says for which.

    Raises:
        DatasetBusyError: another run writes it, and ``waits`` is not given; the message names that run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = False
    with ExitStack() as stack:
        while True:
            try:
                lock = file_lock(folder / LOCK, what="writes the dataset", timeout_s=_PATIENCE_S, holder=run_id)
                stack.enter_context(lock)
                break
            except LockedError as error:
                other = writer(folder) or "unknown"
                if waits is None:
                    raise DatasetBusyError(
                        f"run {other} of dataset {folder.name!r} is going on: wait for it, or end it, then try again"
                    ) from error
                if not told:
                    waits(f"waits for run {other}, which writes dataset {folder.name!r}")
                told = True
        yield


def writer(folder: Path) -> str | None:
    """Id of the run that writes a dataset now; None when none does. Writes nothing.

    Args:
        folder: of the dataset in the store.
    """
    return lock_holder(folder / LOCK)
