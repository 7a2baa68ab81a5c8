"""The files of the real data sets: where they lie, what they must hash to, and where an outside user gets them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PIECE = 1 << 20
FASHION = Path("/usr/share/datasets/fashion-mnist")


class SourceError(Exception):
    """A data file is missing or is not the one the study was measured on."""


@dataclass(frozen=True)
class Source:
    """One file.

    Attributes:
        name: The file's name in its folder.
        sha256: What its bytes must hash to.
        origin: Where an outside user gets it, and what to do with it.
        folder: Where it lies; None for the data folder.
    """

    name: str
    sha256: str
    origin: str
    folder: Path | None = None

    def path(self) -> Path:
        """The verified file.

        Raises:
            SourceError: It is missing, or its bytes are others.
        """
        path = (self.folder or data_folder()) / self.name
        if not path.is_file():
            raise SourceError(f"expected '{self.name}' in {path.parent}, found nothing there; {self.origin}")
        found = sha256(path)
        if found != self.sha256:
            raise SourceError(f"expected {path} to have sha256 {self.sha256}, got {found}; {self.origin}")
        return path


def data_folder() -> Path:
    """`ARACHNE_DATA`, or `../shared/data` beside the project."""
    return Path(os.environ.get("ARACHNE_DATA") or PROJECT.parent / "shared" / "data")


@cache
def sha256(path: Path) -> str:
    """The hash of a file, computed once per run."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


_DEBIAN = (
    "install Debian's package dataset-fashion-mnist, or put the four files of "
    "github.com/zalandoresearch/fashion-mnist there"
)
_TILED = "as one picture of tiles per side ('x_train_img', 'x_test_img', 'tile', see examples/study/data.py)"

FASHION_FILES = {
    "train pictures": Source(
        "train-images-idx3-ubyte.gz",
        "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
        _DEBIAN,
        FASHION,
    ),
    "train labels": Source(
        "train-labels-idx1-ubyte.gz",
        "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
        _DEBIAN,
        FASHION,
    ),
    "test pictures": Source(
        "t10k-images-idx3-ubyte.gz",
        "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
        _DEBIAN,
        FASHION,
    ),
    "test labels": Source(
        "t10k-labels-idx1-ubyte.gz",
        "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
        _DEBIAN,
        FASHION,
    ),
}
CIFAR10 = Source(
    "cifar10.npz",
    "b9699a56324cbc74c3f947cd183dfdd86a87adf413bd4c5b222c1b0cc290e82e",
    f"made from CIFAR-10 (www.cs.toronto.edu/~kriz/cifar.html) {_TILED}: train JPEG quality 94, test lossless WebP",
)
GTSRB = Source(
    "gtsrb.npz",
    "6467ad1fa648c5616769b3da5bae446f86f1495b5a8d838fea99208202a61a07",
    f"made from GTSRB's final split (benchmark.ini.rub.de) {_TILED}: resized to 48 x 48, JPEG quality 90",
)
LFW = Source(
    "lfw_gender.npz",
    "1a9fbd1ba8726c5a7e56d1404bd5e398a7bad48ccf52f429c304c87ddb1cf008",
    f"made from LFW funneled (vis-www.cs.umass.edu/lfw) and Afifi and Abdelhamed's name lists {_TILED}: "
    "centre 160 x 160 resized to 64 x 64",
)
TWEETS = Source(
    "airline_tweets.csv.gz",
    "b1725f24785ca70e02a299401e81aafba51004cedb60755ce819610302237d87",
    "made from Kaggle's crowdflower/twitter-airline-sentiment: its columns airline_sentiment, "
    "airline_sentiment_confidence, negativereason, airline and text, gzipped",
)
GLOVE = Source(
    "glove100d_airline.npz",
    "c43ef32ffedd137af1da84a3dcf79c9bea1cf48be913faa95d8e2116fe0e257a",
    "made from GloVe 6B 100d (nlp.stanford.edu/projects/glove): 'words' and float16 'vectors' of the tweets' words",
)
FM_REFERENCE = Source(
    "fm_reference.npz",
    "18dc0700acd5f6d3e89addf792e414d1563c03ff0a6fa74f800e47a6de6c1d01",
    "it holds the weights 'W1', 'b1', 'W2', 'b2' of a 784-100-10 network and its halves 'val' and 'eval'; ask for it",
)
