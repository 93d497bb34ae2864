"""Scripted candidates of graded skill, and the conversations that they have at an order desk.

- A candidate reads only what stands in the messages, as a model would, and slips at stated rates. It serves by tools
  (`play`), or by sentences to a clerk (`play_text`); the script is one.
- `GRADED` stands in the intended order of skill, best first.
- In the text protocol a candidate is a function of the transcript (`next_message`), so that it can stand before a real
  clerk or before a simulated one. A reply that it cannot read makes it give up.
- A user answers questions in sentences, and closes on the first message without a question mark.
- Whether the wish came true is asked of the database (`Episode.reached`), never of the candidate.

Not covered: candidates that learn or that a model drives. Skill is a stated rate of slips, not a finding.
"""

import json
import re
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from random import Random
from typing import Any, Protocol

from experiential_lab.evaluation.clerk import PROTOCOL, SUBMIT, Clerk, read_reply, write_request
from experiential_lab.evaluation.oracle import POLICY, SILENT_DAYS, STATES, Desk, Draw, pick
from experiential_lab.evaluation.tasks import KINDS, MOST_FAMILIES, WISHES, Task, day_of, is_reached, make_tasks
from experiential_lab.records import Record, UsageError

# Sentences that may stand for each other are parted by " | ". Braces name facts of the task, or fields of an answer.

ANSWERS = {
    "which e-mail": "It is {mail}. | I used {mail}. | My address for orders is {mail}.",
    "another e-mail": "Oh, then it must be {email}. | Sorry, I used {email} for the shop. | Please try {email}.",
    "new address": "It should go to {ship_to}. | {ship_to}, please. | The new one is {ship_to}.",
    "which one": "The later one, of {day}, can go. | Please cancel the one of {day}. | The second one, of {day}.",
    "money back": "Yes, then I take the money back. | What a pity. Then please pay me back. | All right, a refund will do.",
}
GLAD = "Thank you, that is all. | Great, that helps. Goodbye! | Perfect, thanks for the quick help. | Good, then I have what I need."
SAD = "That is a pity, but thank you. | I had hoped for more. Goodbye. | All right, then I wait for news. | Hm. Thank you anyway."


BESIDE = "Let me look that up. | One moment, please. | I will check this for you."
ASK_MAIL = "To find your account: which e-mail address did you order with? | I need your account first, please: which e-mail did you use?"
ASK_OTHER = "I find no account for {mail}. Could it be another e-mail address? | Nothing comes up for {mail}. Did you use another e-mail?"
ASK_ADDRESS = "What is the new address? | Gladly. To which new address should it go?"
ASK_ORDER = "I see two such orders, of {earlier} and {later}. Tell me, which one should go? | There is one of {earlier} and one of {later}: which one do you mean?"
ASK_REFUND = "The {new_name} is sold out. Would you like your money back instead? | I have no {new_name} left. Shall I give you the money back?"
TICKETED = "I am sorry: {why}. I opened ticket {ticket_id}; a colleague will answer by {answer_by}. | Sorry, {why}. The case is with a colleague now, ticket {ticket_id}."
PASSED_ON = "I am sorry, that is not possible: {why}. | Sorry, {why}. I will tell a colleague about it."
PROMISED = "I have everything I need and will take care of it today. | All clear, this will be done within the hour."
RETURNED = "The {item} of order {order_id} was refunded on {paid}, so the money is yours already. | We paid you back for the {item} on {paid}, as order {order_id} shows."
REPORTS = {
    "cancel_order": "Order {order_id} is cancelled and {paid_back} go back to you. Your confirmation is {confirmation}."
    " | Done: {order_id} will not be sent. You get {paid_back} back, confirmation {confirmation}.",
    "change_address": "Order {order_id} now goes to {ship_to}. Your confirmation is {confirmation}."
    " | The address {ship_to} is saved for order {order_id}, confirmation {confirmation}.",
    "refund_item": "I have refunded {paid_back} for the {item}. The refund number is {refund_id}."
    " | You get {paid_back} back for the {item}, refund {refund_id}.",
    "exchange_item": "The {new_name} is on its way to you, exchange {exchange_id}. Please send the {item} back; to pay: {to_pay}."
    " | I have booked exchange {exchange_id}, {new_name} for {item}. The difference is {to_pay}.",
    "track_parcel": "Your parcel {parcel} was scanned on {last_scan} at {place}, so it is moving."
    " | The last scan of parcel {parcel} is of {last_scan}, at {place}. It is on its way.",
}
LEADS = "{} | Please do this. {} | Hello. {} | Next. {}"
GIVEN_UP = "I cannot go on with what I was told."
CARD = "The card says: {name}, {email}"
CARDS = {
    "twice": "; the later order, of {day}, can go",
    "move": "; the new place is {ship_to}",
    "swap": "; if there is none left, the money back",
}
"""What a user of the text protocol would answer when asked."""
NAME, MAIL = r"[A-Z]\w+ [A-Z]\w+", r"[\w.]+@\w+(?:\.\w+)+"
ADDRESS = rf"\d+ {NAME}, \d{{5}} \w+"
PLAIN_WISHES = {"cancel": {"reason": "changed_mind"}, "twice": {"reason": "ordered_twice"}, "track": {}}
BLUNDERS = {
    "cancel_order": {"reason": "customer request"},
    "change_address": {"address": "as in the message"},
    "refund_item": {"sku": "ITEM-1", "reason": "broken"},
    "exchange_item": {"sku": "ITEM-1", "new_sku": "ITEM-2"},
    "track_parcel": {"carrier": "any"},
}
"""What a candidate that guesses sends before it has read anything."""


class Candidate(Record, kw_only=True):
    """A scripted agent: in so many of a hundred occasions it slips."""

    name: str
    guesses: int = 0
    """In its first two turns it acts on what it has not read: accounts, ids, arguments."""
    forgets: int = 0
    """Leaves out a rule of the policy: the state, the stock, the ticket, the reading afterwards."""
    promises: int = 0
    """Says that it will be done, and does not do it."""


CANDIDATES = (
    Candidate(name="careful"),
    Candidate(name="hasty", guesses=70, forgets=50),
    Candidate(name="forgetful", forgets=60, promises=15),
)

"""Those of the small corpus."""
GRADED = (
    Candidate(name="careful"),
    Candidate(name="steady", forgets=20),
    Candidate(name="brisk", forgets=33, promises=3),
    Candidate(name="rushed", guesses=70, forgets=45, promises=13),
    Candidate(name="vague", forgets=50, promises=27),
    Candidate(name="loose", guesses=50, forgets=65, promises=41),
    Candidate(name="idle", forgets=70, promises=60),
    Candidate(name="absent", guesses=70, forgets=80, promises=85),
)
"""In the intended order of skill, best first."""


class Episode(Record, kw_only=True):
    """A conversation that was really had."""

    task: Task
    candidate: str
    trial: int
    messages: tuple[dict[str, Any], ...]
    reached: bool
    """The goal of the task is true in the database."""


def play(task: Task, who: Candidate, *, trial: int) -> Episode:
    """Let a candidate serve the user of a task at a fresh desk."""
    with closing(Desk(task.desk_seed, trial=trial)) as desk:
        talk = _AtDesk(task, who, desk=desk, trial=trial)
        _serve(talk)
        reached = is_reached(task, desk)
    return Episode(task=task, candidate=who.name, trial=trial, messages=tuple(talk.messages), reached=reached)


def play_text(task: Task, who: Candidate, *, trial: int) -> Episode:
    """Let a candidate settle a task with the clerk of a fresh desk."""
    with closing(Desk(task.desk_seed, trial=trial)) as desk:
        clerk, messages = Clerk(desk, task), text_opening(task, trial=trial)
        while (said := next_message(who, messages, seed=text_seed(task, trial))) is not None:
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": clerk.answer(said)}]
    return Episode(task=task, candidate=who.name, trial=trial, messages=tuple(messages), reached=clerk.accepted is True)


def text_opening(task: Task, *, trial: int) -> list[dict[str, Any]]:
    """The messages before a candidate's first: the rules with the clerk's sentences, and the case."""
    with closing(Desk(task.desk_seed, trial=trial)) as desk:
        rules = f"{POLICY.format(today=desk.today)}\n{PROTOCOL}"
    wish = KINDS[task.kind].wish
    card = f"{CARD}{CARDS.get(wish, '')}.".format(**task.facts)
    case = f"A customer writes: {task.openings[trial % len(task.openings)]}\n{card}"
    return [{"role": "system", "content": rules}, {"role": "user", "content": case}]


def text_seed(task: Task, trial: int) -> int:
    """What decides a candidate's slips and phrases in a trial of a task."""
    return task.desk_seed * 64 + 32 + trial


def next_message(who: Candidate, messages: Sequence[dict[str, Any]], *, seed: int) -> str | None:
    """What a candidate writes after a transcript of the text protocol; None after its submission was answered.

    Raises:
        UsageError: no message says what day it is.
    """
    talk = _AtClerk(who, messages, seed=seed)
    try:
        _serve(talk)
    except _Says as says:
        return says.text
    except (LookupError, ValueError, StopIteration):  # a reply without what the script needs
        return None if talk.replies else SUBMIT.format(report=GIVEN_UP)
    return None


def count_reached(tasks: int, seed: int, *, text: bool = False) -> dict[str, int]:
    """{graded candidate: in how many of so many tasks, of all kinds in turn, its goal came true}, best intended first."""
    reached = dict.fromkeys((who.name for who in GRADED), 0)
    for batch, first in enumerate(range(0, tasks, MOST_FAMILIES)):
        for task in make_tasks(MOST_FAMILIES, seed + batch)[: tasks - first]:
            for trial, who in enumerate(GRADED):
                reached[who.name] += (play_text if text else play)(task, who, trial=trial).reached
    return reached


class Talk(Protocol):
    """A conversation while it is had: what the candidate may read, do and say."""

    who: Candidate
    draw: Draw
    heard: str
    """What the user has written."""
    today: date
    messages: list[dict[str, Any]]

    def slips(self, rate: str) -> bool: ...
    def say(self, sentences: str, **facts: Any) -> None: ...
    def do(self, tool: str, **arguments: str) -> Any: ...
    def do_all(self, *calls: tuple[str, dict[str, str]]) -> list[Any]: ...


class _AtDesk:
    """With a user who answers, and tools that are called."""

    def __init__(self, task: Task, who: Candidate, *, desk: Desk, trial: int) -> None:
        self.task, self.who, self.desk = task, who, desk
        self.draw = Random(task.desk_seed * 64 + 32 + trial).random
        self.heard = task.openings[trial % len(task.openings)]
        policy = POLICY.format(today=day_of(str(desk.today)))
        self.today = desk.today  # the policy says it
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": policy},
            {"role": "user", "content": self.heard},
        ]

    def slips(self, rate: str) -> bool:
        return _slips(self, rate)

    def say(self, sentences: str, **facts: Any) -> None:
        """Say one of the sentences; the user answers its question, or closes."""
        said = pick(self.draw, sentences).format(**facts)
        fitting = [pick(self.draw, answer) for words, answer in ANSWERS.items() if words in said]
        answer = fitting[0] if "?" in said else pick(self.draw, SAD if "orry" in said else GLAD)
        reply = answer.format(**self.task.facts)
        self.messages += [{"role": "assistant", "content": said}, {"role": "user", "content": reply}]
        self.heard += f" {reply}"

    def do(self, tool: str, **arguments: str) -> Any:
        """Call one tool; its answer."""
        return self.do_all((tool, arguments))[0]

    def do_all(self, *calls: tuple[str, dict[str, str]]) -> list[Any]:
        """Call tools in one turn; their answers in order."""
        turn: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
        if self.draw() < 0.25:
            turn["content"] = pick(self.draw, BESIDE)
        results = []
        for n, (tool, arguments) in enumerate(calls):
            function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
            call_id = f"call_{len(self.messages) + n:02d}{int(self.draw() * 16**6):06x}"  # the place makes it unique
            turn["tool_calls"].append({"id": call_id, "type": "function", "function": function})
            text = self.desk.call(tool, function["arguments"])
            results.append({"role": "tool", "tool_call_id": call_id, "name": tool, "content": text})
        self.messages += [turn, *results]
        return [json.loads(result["content"]) for result in results]


class _Says(Exception):
    """The transcript ends here, and `text` is the candidate's next message."""

    def __init__(self, text: str) -> None:
        self.text = text


class _AtClerk:
    """With a clerk who answers sentences; nothing happens but what a transcript holds."""

    def __init__(self, who: Candidate, messages: Sequence[dict[str, Any]], *, seed: int) -> None:
        first = next(n for n, message in enumerate(messages) if message["role"] == "user")
        self.who, self.draw = who, Random(seed).random
        self.heard: str = messages[first]["content"]
        self.today = _today(messages)
        self.messages = list(messages[: first + 1])
        self.replies = [message["content"] for message in messages[first + 1 :] if message["role"] == "user"]

    def slips(self, rate: str) -> bool:
        return _slips(self, rate)

    def say(self, sentences: str, **facts: Any) -> None:
        """Submit one of the sentences; there is nobody to ask, and the card of the case answers what one may ask."""
        said = pick(self.draw, sentences).format(**facts)
        if "?" not in said:
            self._ask(SUBMIT.format(report=said))

    def do(self, tool: str, **arguments: str) -> Any:
        """Ask the clerk for one call; what the answer says."""
        return read_reply(tool, self._ask(pick(self.draw, LEADS).format(write_request(tool, arguments))))

    def do_all(self, *calls: tuple[str, dict[str, str]]) -> list[Any]:
        return [self.do(tool, **arguments) for tool, arguments in calls]

    def _ask(self, said: str) -> str:
        if not self.replies:
            raise _Says(said)
        reply: str = self.replies.pop(0)
        self.messages += [{"role": "assistant", "content": said}, {"role": "user", "content": reply}]
        return reply


def _today(messages: Sequence[dict[str, Any]]) -> date:
    for message in messages:
        if found := re.search(r"Today is (\d{4}-\d\d-\d\d)", str(message["content"])):
            return date.fromisoformat(found[1])
    raise UsageError("no message says `Today is YYYY-MM-DD`; begin as `text_opening` does")


def _slips(talk: Talk, rate: str) -> bool:
    chance: int = getattr(talk.who, rate)
    return talk.draw() * 100 < chance and (rate != "guesses" or len(talk.messages) < 5)


def _serve(talk: Talk) -> None:
    """Serve one user, by the policy where the candidate does not slip. It decides on the messages alone."""
    wish = next(wish for wish, sentences in WISHES.items() if re.search(sentences.words, talk.heard, re.I))
    tool, order = WISHES[wish].tool, _find_order(talk)
    if talk.slips("guesses"):
        talk.do(tool, order_id=order["order_id"], **BLUNDERS[tool])
    arguments = _arguments(talk, wish, order)
    if talk.slips("promises"):
        return talk.say(PROMISED)
    if order.get("state") == "refunded" and not talk.slips("forgets"):
        paid = next(note["at"] for note in order["history"] if order["sku"] in note["what"])
        return talk.say(RETURNED, paid=day_of(paid), **order)
    if order.get("status", STATES[tool][1]) not in STATES[tool][1] and not talk.slips("forgets"):
        return _hand_over(talk, order, f"order {order['order_id']} is {order['status']}")
    if wish == "swap" and order["new_in_stock"] < order["quantity"] and not talk.slips("forgets"):
        return _refund_instead(talk, order)
    answer = talk.do(tool, order_id=order["order_id"], **arguments)
    if answer.get("error") == "unknown_order":
        order = _look_up(talk)
        answer = talk.do(tool, order_id=order["order_id"], **arguments)
    if answer.get("error") == "out_of_stock" and not talk.slips("forgets"):
        return _refund_instead(talk, order)
    _tell(talk, tool, order, answer=answer)


def _find_order(talk: Talk) -> dict[str, Any]:
    number = re.search(r"W-\d+", talk.heard)
    if not number:
        return _look_up(talk)
    if talk.slips("guesses"):
        return {"order_id": number[0]}
    order: dict[str, Any] = talk.do("get_order", order_id=number[0])
    return _look_up(talk) if "error" in order else order


def _look_up(talk: Talk) -> dict[str, Any]:
    """The row of `list_orders` that the user means, found through the customer."""
    mails = re.findall(MAIL, talk.heard)
    if talk.slips("guesses"):
        talk.do("list_orders", customer_id=mails[-1] if mails else re.findall(NAME, talk.heard)[-1])
    if not mails:
        talk.say(ASK_MAIL)
    while not (found := talk.do("find_customer", email=(mail := re.findall(MAIL, talk.heard)[-1]))):
        talk.say(ASK_OTHER, mail=mail)
    customer = found[0]["customer_id"]
    orders = talk.do("list_orders", customer_id=customer)
    orders = [order for order in orders if any(item in talk.heard for item in order["items"])]
    if len(orders) == 1 or talk.slips("forgets"):
        return {**orders[-1], "customer_id": customer}
    later, earlier = orders
    talk.say(ASK_ORDER, later=day_of(later["placed"]), earlier=day_of(earlier["placed"]))
    meant, other = (later, earlier) if day_of(later["placed"]) in talk.heard else (earlier, later)
    return {**meant, "customer_id": customer, "other": other["order_id"]}


def _arguments(talk: Talk, wish: str, order: dict[str, Any]) -> dict[str, str]:
    """What the tool of this wish takes beside the order; for an item the order is read, into `order`."""
    if wish in PLAIN_WISHES:
        return PLAIN_WISHES[wish]
    if wish == "move":
        while not (found := re.search(ADDRESS, talk.heard)):
            talk.say(ASK_ADDRESS)
        return {"ship_to": found[0]}
    new = re.findall("for the (.+?)[,:?]", talk.heard) if wish == "swap" else []
    calls = [("check_stock", {"words": name}) for name in new]
    if "ship_to" not in order:
        calls.insert(0, ("get_order", {"order_id": order["order_id"]}))
    for answer in talk.do_all(*calls) if calls else []:
        order |= {f"new_{key}": value for key, value in answer[0].items()} if isinstance(answer, list) else answer
    item = next(item for item in order["items"] if item["name"] in talk.heard)
    order |= {"sku": item["sku"], "item": item["name"], "state": item["state"], "quantity": item["quantity"]}
    if wish == "swap":
        return {"sku": item["sku"], "new_sku": order["new_sku"]}
    return {"sku": item["sku"], "reason": "not_as_described" if "picture" in talk.heard else "broken"}


def _refund_instead(talk: Talk, order: dict[str, Any]) -> None:
    talk.say(ASK_REFUND, **order)
    answer = talk.do("refund_item", order_id=order["order_id"], sku=order["sku"], reason="unwanted")
    _tell(talk, "refund_item", order, answer=answer)


def _tell(talk: Talk, tool: str, order: dict[str, Any], *, answer: dict[str, Any]) -> None:
    """Say what came of it; the policy asks for a look at the order first, or for a ticket."""
    if "error" in answer:
        return _hand_over(talk, order, answer["detail"])
    if tool == "track_parcel":
        silent = (talk.today - date.fromisoformat(answer["last_scan"])).days  # the policy says what today is
        if silent >= SILENT_DAYS and not talk.slips("forgets"):
            why = f"parcel {answer['parcel']} had no scan for {silent} days"
            return _hand_over(talk, order, why, topic="lost_parcel")
    read = [("get_order", {"order_id": order[key]}) for key in ("order_id", "other") if key in order]
    if tool != "track_parcel" and len(talk.messages) + len(read) <= 13 and not talk.slips("forgets"):
        talk.do_all(*read)
    talk.say(REPORTS[tool], **order | _spoken(answer))


def _hand_over(talk: Talk, order: dict[str, Any], why: str, *, topic: str = "refused") -> None:
    if talk.slips("forgets"):
        return talk.say(PASSED_ON, why=why)
    if "customer_id" not in order:
        order = talk.do("get_order", order_id=order["order_id"])
    ticket = talk.do("open_ticket", customer_id=order["customer_id"], topic=topic, note=why)
    talk.say(TICKETED, why=why, **_spoken(ticket))


def _spoken(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer in the words of people: cents as money, moments as days."""
    spoken = {}
    for key, value in answer.items():
        if key.endswith("_cents"):
            spoken[key.removesuffix("_cents")] = f"{value / 100:.2f} EUR"
        else:
            spoken[key] = day_of(value) if re.match(r"\d{4}-\d\d-\d\d", str(value)) else value
    return spoken
