"""Networks for text, signals and tables."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class TextLSTM(nn.Module):
    """Words to a bidirectional LSTM over packed sequences, the last states to a head."""

    def __init__(self, words: int = 30, classes: int = 3, width: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, ids: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1])
        return self.head(states.sum(1) / lengths[:, None])


class SignalNet(nn.Module):
    """Dilated convolutions over a signal."""

    def __init__(self, classes: int = 3, width: int = 8) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        inside = 1
        for dilation in (1, 2, 4):
            parts += [nn.Conv1d(inside, width, 5, padding=2 * dilation, dilation=dilation), nn.BatchNorm1d(width)]
            parts += [nn.ReLU(), nn.MaxPool1d(2)]
            inside = width
        self.features = nn.Sequential(*parts)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Any:
        return torch.log_softmax(self.head(self.features(x).mean(2)), dim=1)


class TabularNet(nn.Module):
    """Numbers and a category, each its own input."""

    def __init__(self, features: int = 13, categories: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.category = nn.Embedding(categories, 4)
        self.layers = nn.Sequential(
            nn.Linear(features + 4, 24),
            nn.LayerNorm(24),
            nn.GELU(),
            nn.Linear(24, 24),
            nn.SiLU(),
            nn.Linear(24, classes),
        )

    def forward(self, numbers: Tensor, category: Tensor) -> Any:
        return {"logits": self.layers(torch.cat([numbers, self.category(category)], 1)), "numbers": numbers}


def bert(words: int = 30, classes: int = 3) -> nn.Module:
    """A BERT-like encoder with random weights, from the transformers package."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=words,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=classes,
    )
    model: nn.Module = BertForSequenceClassification(config)
    return model
