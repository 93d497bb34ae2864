"""What a command gave: its exit code, and both streams."""

import json
from collections.abc import Callable
from typing import NamedTuple


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


Xlab = Callable[..., Ran]
