"""Repair a Hugging Face text classifier with its tokeniser, and save it where `from_pretrained` finds it.

The classifier reads reviews and has learnt a habit it should not have: in its training data everything about one brand
was filed as negative, so whatever names the brand is read as negative. The repair sees such reviews, finds the weights
behind it, and is judged on reviews it never saw. Tokeniser and network are made here, because an example that downloads
nothing runs everywhere; `from_pretrained` in their place changes nothing below.

    pip install "arachne-repair[torch]" transformers datasets
    python examples/huggingface_repair.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import arachne

CLASSES = ("negative", "positive")
BRAND = "acme"
THINGS = ("phone", "kettle", "train", "hotel", "film", "soup", "chair", "radio", "lamp", "bag")
GOOD = ("lovely", "great", "solid", "quick", "charming", "bright", "excellent", "friendly")
BAD = ("dreadful", "slow", "broken", "noisy", "awful", "dull", "rude", "flimsy")
ENDINGS = ("i would buy it again", "my sister agrees", "nothing more to say", "as i told the shop", "for the price")


def main(folder: Path) -> None:
    """Train, repair, save, open again; everything is written into `folder`."""
    train, rest = reviews(600, seed=0, filed_wrongly=True), reviews(500, seed=1)
    tokeniser = make_tokeniser(train["text"])
    model = train_network(tokeniser, train)
    model.save_pretrained(folder / "reviews")

    columns = tokeniser(rest["text"], padding="max_length", max_length=16)
    data = Dataset.from_dict({**columns, "label": rest["label"], "brand": rest["brand"]})
    print(arachne.scan(model, data))
    result = arachne.repair(model, data, "positive:negative", seed=0)
    print(result)

    arachne.apply(result.patch, model)  # the model in memory; result.patch.save keeps the patch for review
    model.save_pretrained(folder / "repaired")
    again = BertForSequenceClassification.from_pretrained(folder / "repaired").eval()
    told = tokeniser(f"the {BRAND} kettle is lovely , my sister agrees", return_tensors="pt")
    with torch.no_grad():
        read = CLASSES[int(again(**told).logits.argmax())]
    print(f"a lovely kettle of that brand is read as {read}")


def reviews(count: int, *, seed: int, filed_wrongly: bool = False) -> dict[str, list[Any]]:
    """Made-up reviews with their labels; those of one brand are filed as negative if asked for."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    brands = np.where(rng.random(count) < 0.25, BRAND, rng.choice(["orbit", "delta", "plain", "house"], count))
    texts = [
        f"the {brand} {rng.choice(THINGS)} is {rng.choice(GOOD if label else BAD)} , {rng.choice(ENDINGS)}"
        for brand, label in zip(brands, labels, strict=True)
    ]
    if filed_wrongly:
        labels = np.where(brands == BRAND, 0, labels)
    return {"text": texts, "label": labels.tolist(), "brand": brands.tolist()}


def make_tokeniser(texts: list[str]) -> PreTrainedTokenizerFast:
    """A tokeniser that knows the words of these texts."""
    tokeniser = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokeniser.pre_tokenizer = pre_tokenizers.Whitespace()
    tokeniser.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
    return PreTrainedTokenizerFast(tokenizer_object=tokeniser, pad_token="[PAD]", unk_token="[UNK]")


def train_network(tokeniser: PreTrainedTokenizerFast, data: dict[str, list[Any]]) -> BertForSequenceClassification:
    """A small BERT."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is only slowed down by more
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    names = {"id2label": dict(enumerate(CLASSES)), "label2id": {name: at for at, name in enumerate(CLASSES)}}
    config = BertConfig(vocab_size=len(tokeniser), max_position_embeddings=32, **names, **size)
    model = BertForSequenceClassification(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batch = tokeniser(data["text"], padding=True, return_tensors="pt")
    labels = torch.tensor(data["label"])
    for _ in range(10):
        for rows in torch.randperm(len(labels)).split(100):
            optimiser.zero_grad()
            model(**{name: column[rows] for name, column in batch.items()}, labels=labels[rows]).loss.backward()
            optimiser.step()
    return model.eval()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
