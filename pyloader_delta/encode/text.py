"""`TextDataset`: whitespace-separated words become padded ids."""

from __future__ import annotations

from typing import Any

from pyloader_delta.encode.base import Dataset, T_co
from pyloader_delta.errors import ConfigError, ContractError

PAD_ID = 0
"""Id of padding and of unknown words."""


class TextDataset(Dataset[T_co]):
    """Encodes column `input_text` as word ids and passes `label` through.

    Args:
        vocab_file: One word a line, its id the line number from 0; a tab ends the word. None: the text is ids already.
        max_seq_len: Words of a text that count, >= 1; shorter texts are padded.
        max_vocab_size: Lines of the vocabulary that count, >= 1.
    """

    def __init__(self, vocab_file: str | None = None, max_seq_len: int = 100, max_vocab_size: int = 30000) -> None:
        if max_seq_len < 1:
            raise ConfigError(f"max_seq_len must be >= 1, got {max_seq_len}")
        if max_vocab_size < 1:
            raise ConfigError(f"max_vocab_size must be >= 1, got {max_vocab_size}")
        self.max_seq_len = max_seq_len
        self.max_vocab_size = max_vocab_size
        self.stoi: dict[str, int] = {}
        self.itos: dict[int, str] = {}
        if vocab_file is not None:
            self.load_vocab(vocab_file)

    def load_vocab(self, vocab_file: str) -> None:
        """Read a vocabulary; a word that stands twice keeps its first id."""
        with open(vocab_file, encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if number >= self.max_vocab_size:
                    break
                word = line.strip().split("\t")[0]
                self.stoi.setdefault(word, number)
                self.itos[number] = word

    def batch_encode(self, batch_data: Any) -> dict[str, list[Any]]:
        """Return `input_ids` and `attention_mask`, lists of `max_seq_len` ints a row, and `label` where there is one.

        Raises:
            ContractError: There is no column `input_text`, or a text is not a str.
        """
        if "input_text" not in batch_data:
            raise ContractError(f"TextDataset wants a column 'input_text'; the files have {sorted(batch_data)}")
        input_ids, attention_mask = [], []
        for text in batch_data["input_text"]:
            ids = self._ids(text)[: self.max_seq_len]
            padding = self.max_seq_len - len(ids)
            input_ids.append(ids + [PAD_ID] * padding)
            attention_mask.append([1] * len(ids) + [0] * padding)
        encoded = {"input_ids": input_ids, "attention_mask": attention_mask}
        if "label" in batch_data:
            encoded["label"] = batch_data["label"]
        return encoded

    def _ids(self, text: Any) -> list[int]:
        if not isinstance(text, str):
            raise ContractError(f"TextDataset: input_text must be a str, got {text!r}")
        if self.stoi:
            return [self.stoi.get(word, PAD_ID) for word in text.split()]
        return [int(word) for word in text.split()]
