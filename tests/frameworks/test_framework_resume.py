"""Examples of frameworks, run as their users run them; and what resuming refuses."""

import importlib.util
import json

import pytest

from pyloader_delta import ConfigError, DataLoader, StateError
from tests.test_examples import needs_sources, run

pytestmark = [pytest.mark.frameworks, needs_sources]


def needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{missing} not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("stop", [30, 23], ids=["within an epoch", "at its end"])
@pytest.mark.parametrize(
    "example",
    [
        pytest.param("lightning_resume", marks=needs("lightning")),
        pytest.param("trainer_resume", marks=needs("transformers")),
    ],
)
def test_a_trainer_goes_on_with_exactly_the_batches_that_follow(example, stop, folder):
    text = run("-m", f"examples.{example}", "--folder", folder, "--stop", str(stop))
    assert f"whole run: 46 batches; cut off after {stop}, then {46 - stop} more" in text
    assert "the same batches in the same order: True" in text


@needs("accelerate")
def test_accelerate_saves_and_loads_the_place_of_the_loader(folder):
    text = run("-m", "examples.accelerate_resume", "--folder", folder)
    assert "rank 0 of 1: 23 batches, 1437 rows" in text
    assert "the same batches in the same order: True" in text


@needs("torch")
def test_torch_dataloader_goes_on_within_an_epoch(folder):
    text = run("-m", "examples.torch_dataloader", "--folder", folder)
    assert "DataLoader: 23 batches of 1437 rows" in text
    assert "the same batches in the same order: True" in text


# torchdata ----------------------------------------------------------------------------------------------------------


@needs("torchdata")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("n_taken", [1, 5, 22])
def test_torchdatas_stateful_loader_takes_the_state_of_its_dataset(n_taken, folder):
    from torchdata.stateful_dataloader import StatefulDataLoader

    from examples import tables, torch_dataloader

    def made():
        view = torch_dataloader.make_loader(tables.digits(folder)).to_torch()
        return StatefulDataLoader(view.dataset, batch_size=64, collate_fn=view.collate_fn)

    whole = [batch["label"].tolist() for batch in made()]
    stateful = made()
    batches = iter(stateful)
    first = [next(batches)["label"].tolist() for _ in range(n_taken)]
    state = json.loads(json.dumps(stateful.state_dict()))
    again = made()
    again.load_state_dict(state)
    assert first + [batch["label"].tolist() for batch in again] == whole


# The Trainer's callback ---------------------------------------------------------------------------------------------


@pytest.fixture
def trainer(folder, tmp_path):
    pytest.importorskip("transformers")
    from examples import tables, trainer_resume

    with DataLoader.from_delta(tables.digits(folder), 64, fields=["label"], num_workers=0) as loader:

        def made(loader=loader, **options):
            arguments = trainer_resume.TrainingArguments(
                str(tmp_path), max_steps=1, use_cpu=True, report_to=[], **{"ignore_data_skip": True} | options
            )
            return trainer_resume.LoaderTrainer(loader, model=trainer_resume.Digits(), args=arguments)

        yield made


@pytest.mark.filterwarnings("ignore")
def test_the_callback_refuses_a_trainer_that_would_skip(trainer):
    with pytest.raises(ConfigError, match="ignore_data_skip=True"):
        trainer(ignore_data_skip=False)


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_without_a_state_is_refused_and_so_is_one_of_another_order(trainer, folder):
    from examples import tables

    (callback,) = [cb for cb in trainer().callback_handler.callbacks if type(cb).__name__ == "ResumeCallback"]
    state = trainer().state
    state.global_step = 3
    callback.on_train_begin(None, state, None)  # as it was made: the beginning
    other = DataLoader.from_delta(tables.digits(folder), 32, fields=["label"], num_workers=0)
    state.stateful_callbacks["ResumeCallback"]["attributes"]["loader_state"] = other.state_dict()
    with pytest.raises(StateError, match="batch_size"):
        callback.on_train_begin(None, state, None)
    state.stateful_callbacks.clear()
    with pytest.raises(ConfigError, match="checkpoint of step 3 has no state of the loader"):
        callback.on_train_begin(None, state, None)
