"""World models: what plays the environment for one turn, and the one that needs no provider.

- A world model gets a Request and gives back a Prediction. It sees the task, the context, the visible transcript, the
  action and the retrieved hits; it never sees the candidate, its client or the session.
- `snapshot` names exactly what answers. Two models with one snapshot give equal predictions for equal requests.
- A prediction states the ranks that it rests on. The turn makes the use receipts from it, and no model can name a rank
  that was not retrieved.
- Copy-nearest gives back the observation of hit 1 as it was recorded. `terminal` is the label of that precedent, and an
  unknown label counts as false. A terminal observation is copied without its stop marker.

Not covered: whether a copied observation fits the action. One precedent is no rule, and no text is interpreted here.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

from experiential_lab.evidence.trace import shown
from experiential_lab.records import FREE, Cost, Record
from experiential_lab.retrieval.hits import Hits


class Message(Record, kw_only=True):
    """One message of the visible transcript: the candidate is the assistant, the world model is the user."""

    role: Literal["assistant", "user"]
    content: str


class Request(NamedTuple):
    """What a world model is given for one turn."""

    task: str
    context: str | None
    """What was visible before the first action. None: nothing."""
    transcript: tuple[Message, ...]
    """The accepted messages before this action, in order."""
    action: str
    hits: Hits
    """At least one eligible precedent, best first."""


class Prediction(Record, kw_only=True):
    """One predicted observation, with what it rests on and what it cost."""

    message: str
    terminal: bool
    used: tuple[int, ...]
    """Ranks that were put before the model or copied, ascending."""
    unused: str
    """Why the other ranks were not: the reason of their no-use receipts."""
    copied_from: int | None = None
    """The rank whose observation the message is, whole. None: the message is no plain copy."""
    prompt_version: str | None = None
    """None: a model without a prompt."""
    prompt: str | None = None
    """Digest of the prompt. None: a model without a prompt."""
    cost: Cost


class WorldModel(Protocol):
    """What plays the environment."""

    @property
    def name(self) -> str:
        """What people call it, for example `copy-nearest`."""

    @property
    def snapshot(self) -> str:
        """Exactly what answers, for example `copy-nearest@1`."""

    def predict(self, request: Request) -> Prediction:
        """The observation that may follow the action.

        Raises:
            ProviderError: the provider behind the model failed, or its reply cannot be used.
        """


@dataclass(frozen=True, slots=True)
class CopyNearest:
    """The observation of hit 1, copied. It costs nothing, and its usage is known to be none."""

    name: ClassVar[str] = "copy-nearest"
    snapshot: ClassVar[str] = "copy-nearest@1"

    def predict(self, request: Request) -> Prediction:
        """The observation of hit 1 as it was recorded, without the stop marker when its label is terminal."""
        precedent = request.hits.entries[0]
        terminal = precedent.terminal is True
        return Prediction(
            message=shown(precedent.value) if terminal else precedent.value,
            terminal=terminal,
            used=(1,),
            unused="not_nearest",
            copied_from=1,
            cost=FREE,
        )
