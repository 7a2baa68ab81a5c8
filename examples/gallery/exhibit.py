"""One model of the gallery: where its file is, which inputs are made for it, and the mistake to repair."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[np.generic]]


class MissingError(Exception):
    """Something to install first."""


@dataclass(frozen=True)
class Exhibit:
    """A model that comes with a package, and a mistake of it.

    Attributes:
        name: For the command line and the result file.
        title: The mistake, as a heading.
        package: Distribution that holds the model file.
        install: Shell command that installs what is needed.
        model: Path of the model file inside the package's module, `module/path`.
        make_data: Makes the labelled inputs.
        inputs: One sentence: where the inputs come from.
        target: For `--target`.
        options: Further options of `arachne repair`.
        search_options: Options of the default search, which a shift of biases does not have.
        remark: What to make of it, shown below the figures.
    """

    name: str
    title: str
    package: str
    install: str
    model: str
    make_data: Callable[[], Arrays]
    inputs: str
    target: str
    options: tuple[str, ...] = ()
    search_options: tuple[str, ...] = ()
    remark: str = ""

    @property
    def version(self) -> str:
        """Installed version of the package."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            raise MissingError(f"'{self.name}' needs: {self.install}") from None

    def find_model(self) -> Path:
        """Return the path of the model file in the installed package."""
        path = package_folder(self.model.partition("/")[0], self.install) / self.model.partition("/")[2]
        if not path.is_file():
            raise MissingError(f"'{path.name}' is not in {self.package} {self.version}; install: {self.install}")
        return path


def package_folder(module: str, install: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise MissingError(f"'{module}' is not installed: {install}")
    return Path(spec.origin).parent
