"""A localiser: some weights of the last layer."""

from dataclasses import dataclass

import numpy as np

from arachne import Address, Localisation, Localiser, option
from arachne.localise import Selection


@dataclass(frozen=True, kw_only=True)
class LastLayer(Localiser):
    """Some weights of the last layer, drawn at random."""

    name = "last"

    weights: int = option(8, "How many weights to take.", least=1)

    def localise(self, backend, part, *, rng):
        info, parameter = list(self.candidates(backend))[-1]
        shape = info.parameters[parameter].shape
        size = min(self.count or self.weights, int(np.prod(shape)))
        chosen = rng.choice(int(np.prod(shape)), size=size, replace=False)
        addresses = [
            Address(info.name, parameter, tuple(int(i) for i in np.unravel_index(number, shape))) for number in chosen
        ]
        return Localisation(self.name, Selection.of(backend, addresses), (), size, int(np.prod(shape)))
