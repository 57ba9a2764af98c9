"""`ResumeCallback`: Hugging Face's Trainer goes on in the middle of an epoch with exactly the batches that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import ExportableState, TrainerCallback

from pyloader_delta.errors import ConfigError

if TYPE_CHECKING:
    from pyloader_delta.loader import DataLoader


class ResumeCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Saves a loader's state in the Trainer's checkpoints (`trainer_state.json`) and loads it when training resumes.

    The Trainer needs `ignore_data_skip=True`, for it would read what was trained on once more in order to skip it, and
    a `get_train_dataloader` that returns the loader.

    Args:
        loader: The loader that is trained on.

    Raises:
        ConfigError: From the Trainer, as it is made: `ignore_data_skip` is not set; when it resumes: the checkpoint was
            saved without this callback.
        StateError: From the Trainer when it resumes: the checkpoint is of another table, version or order.
    """

    def __init__(self, loader: DataLoader[Any] | None = None) -> None:
        self._loader = loader

    def state(self) -> dict[str, Any]:
        """Return what the Trainer puts into `trainer_state.json`; it is the same on every rank."""
        return {"args": {}, "attributes": {"loader_state": self._found().state_dict()}}

    def on_init_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Check the Trainer's options."""
        self._found()
        if not args.ignore_data_skip:
            raise ConfigError("ResumeCallback needs TrainingArguments(ignore_data_skip=True): it skips nothing twice")

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Load the state of the checkpoint that training resumes from."""
        if not state.global_step:
            return
        saved = (state.stateful_callbacks or {}).get(type(self).__name__)
        if not isinstance(saved, dict):
            raise ConfigError(
                f"the checkpoint of step {state.global_step} has no state of the loader: it was saved without "
                "ResumeCallback, or with several"
            )
        self._found().load_state_dict(saved["attributes"]["loader_state"])

    def _found(self) -> DataLoader[Any]:
        if self._loader is None:
            raise ConfigError(
                "ResumeCallback needs its loader: ResumeCallback(loader), and restore_callback_states_from_checkpoint "
                "left False, which would make it anew without one"
            )
        return self._loader
