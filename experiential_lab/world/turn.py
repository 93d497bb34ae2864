"""One grounded turn: an action becomes a query, the query precedents with a receipt, and these a predicted observation.

- The order is: check the action, search the view, keep the receipt, ask the world model, write the uses. What is refused
  is refused before the world model is asked, and costs what the search cost.
- The query is the task, the last observation of the visible transcript (none at the start) and the action; never the
  context, and never anything that is to be predicted.
- Support blocks nothing by itself. A turn without an eligible precedent is refused (`no_precedent`). With `refuse_below`
  a turn is refused (`no_support`) when its support is a later letter than the given one: "B" refuses C and D.
- A refusal, or a failure of the provider, is a Turn too, with its costs: here it is recorded, only a session raises it.
- Each rank that the prediction rests on has one use receipt, each other rank one no-use receipt with its reason. After
  a failure there is neither: what the model made of the ranks is unknown.
- Costs stand apart by component. A component that was not asked cost nothing, and that is known. What a failed provider
  cost is unknown.
- A Turn holds no time, so equal inputs give equal bytes; how long each component took stands beside it.

Not covered: what the prediction is worth. It is a prediction, whatever its support.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, get_args

from experiential_lab.records import FREE, Cost, Failure, ProviderError, Record, Unverifiable, UsageError
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import IndexView
from experiential_lab.retrieval.receipts import Consumer, DispositionReceipt, Query, UseReceipt
from experiential_lab.retrieval.refusal import Certificate, refused
from experiential_lab.retrieval.support import Label
from experiential_lab.world.models import Message, Prediction, Request, WorldModel

Component = Literal["world_model", "retrieval", "orchestration"]
Refusal = Literal["no_precedent", "no_support"]

COMPONENTS: tuple[Component, ...] = get_args(Component)  # a hand-stepped turn has no candidate: it is absent, not zero
REFUSE_BELOW: tuple[Label, ...] = ("A", "B", "C")  # nothing is below D


class Setting(NamedTuple):
    """What stays the same from turn to turn."""

    task: str
    context: str | None
    view: IndexView
    world_model: WorldModel
    k: int = 5
    """How many precedents are asked for."""
    refuse_below: Label | Certificate | None = None
    """A support of a later letter is refused. None: none is."""


class Turn(Record, kw_only=True):
    """What became of one action."""

    prediction: str | None = None
    """The predicted observation. None: refused, or failed."""
    terminal: bool = False
    support: Label
    refused: Refusal | None = None
    failure: Failure | None = None
    world_model: str
    """Snapshot of the model that answered, or would have."""
    prompt_version: str | None = None
    prompt: str | None = None
    """Digest of the prompt. None: no prompt was made."""
    receipt: str | None = None
    """Digest of the retrieval receipt. None: nothing was retrieved."""
    copied_from: int | None = None
    """The rank whose observation the prediction is, whole."""
    costs: tuple[tuple[Component, Cost], ...]


class Taken(NamedTuple):
    """A turn, and what lives only in memory beside it."""

    turn: Turn
    hits: Hits | Unverifiable
    uses: tuple[UseReceipt | DispositionReceipt, ...]
    """By rank. Empty: nothing was retrieved, or the provider failed."""
    latency_ns: Mapping[Component, int]


def take_turn(setting: Setting, transcript: tuple[Message, ...], action: str, *, clock: Callable[[], int]) -> Taken:
    """What may follow `action`, or why nothing is said of it. `clock` is monotonic, in nanoseconds.

    Raises:
        UsageError: the action says nothing.
    """
    begin = clock()
    if not action.strip():
        raise UsageError("an action needs some text; a turn without one has nothing to ask for")
    query = Query(action=action, task=setting.task, recent=_recent(transcript))
    asked = clock()
    found, answer, cost = _search(setting, query)
    searched = clock()
    refusal = None if answer.failure else _refusal(found, setting.refuse_below)
    if refusal or isinstance(found, Unverifiable):
        answered = searched
    else:
        answer = _ask(setting.world_model, Request(setting.task, setting.context, transcript, action, found))
        answered = clock()
    turn = _turn(setting, found, refusal, answer, cost)
    uses = _uses(found, turn, answer.prediction)
    spent: dict[Component, int] = {"world_model": answered - searched, "retrieval": searched - asked}
    spent["orchestration"] = clock() - begin - sum(spent.values())
    return Taken(turn, found, uses, spent)


class _Searched(NamedTuple):
    """What retrieval gave; `answer` says why the world model cannot be asked, or nothing yet."""

    found: Hits | Unverifiable
    answer: "_Answer"
    cost: Cost


def _search(setting: Setting, query: Query) -> _Searched:
    try:
        found = setting.view.nearest(query, k=setting.k)
    except ProviderError as error:  # a query may be embedded by a provider, who is paid for a bad answer too
        failure = _failure(str(error), attribution="retrieval", phase="embed")
        answer = _Answer(None, failure, FREE)
        return _Searched(Unverifiable(reason="the query was not embedded"), answer, getattr(error, "cost", Cost()))
    return _Searched(found, _NOT_ASKED, FREE if isinstance(found, Unverifiable) else found.cost)


def _recent(transcript: tuple[Message, ...]) -> str | None:
    return next((message.content for message in reversed(transcript) if message.role == "user"), None)


def _refusal(found: Hits | Unverifiable, refuse_below: Label | Certificate | None) -> Refusal | None:
    if isinstance(found, Unverifiable):
        return "no_precedent"
    if isinstance(refuse_below, Certificate):
        return "no_support" if refused(found, refuse_below) else None
    return "no_support" if refuse_below is not None and found.support > refuse_below else None


class _Answer(NamedTuple):
    """What the world model gave; without a prediction and a failure it was not asked."""

    prediction: Prediction | None
    failure: Failure | None
    cost: Cost


_NOT_ASKED = _Answer(None, None, FREE)


def _ask(world_model: WorldModel, request: Request) -> _Answer:
    try:
        prediction = world_model.predict(request)
    except ProviderError as error:
        return _Answer(None, _failure(str(error)), Cost())
    try:
        prediction.message.encode()
    except UnicodeEncodeError as error:
        return _Answer(None, _failure(f"the predicted text is no Unicode at character {error.start}"), prediction.cost)
    return _Answer(prediction, None, prediction.cost)


def _failure(
    detail: str, *, attribution: Literal["world_model", "retrieval"] = "world_model", phase: str = "predict"
) -> Failure:
    return Failure(code="provider", attribution=attribution, phase=phase, retryable=False, detail=detail)


def _turn(
    setting: Setting, found: Hits | Unverifiable, refused: Refusal | None, answer: _Answer, searched: Cost
) -> Turn:
    prediction = answer.prediction
    return Turn(
        prediction=prediction.message if prediction else None,
        terminal=prediction.terminal if prediction else False,
        support="D" if isinstance(found, Unverifiable) else found.support,
        refused=refused,
        failure=answer.failure,
        world_model=setting.world_model.snapshot,
        prompt_version=prediction.prompt_version if prediction else None,
        prompt=prediction.prompt if prediction else None,
        receipt=None if isinstance(found, Unverifiable) else found.receipt.receipt_digest,
        copied_from=prediction.copied_from if prediction else None,
        costs=(("world_model", answer.cost), ("retrieval", searched), ("orchestration", FREE)),
    )


def _uses(
    found: Hits | Unverifiable, turn: Turn, prediction: Prediction | None
) -> tuple[UseReceipt | DispositionReceipt, ...]:
    if isinstance(found, Unverifiable) or turn.failure:
        return ()
    used, reason = (prediction.used, prediction.unused) if prediction else ((), str(turn.refused))
    consumer = Consumer(kind="prompt", uri=turn.world_model, digest=turn.prompt or "")
    receipts = {hit.rank: found.no_use(hit.rank, reason) for hit in found if hit.rank not in used}
    return tuple(receipts.get(rank) or found.use(rank, "supports", consumer) for rank in sorted({*receipts, *used}))
