"""What users want of an order desk: tasks that are found in its shops, their sentences, and what makes them come true.

- A task is found in a shop by a query, never planted. Kinds that share a wish share their sentences: whether an order
  can still be cancelled is known to the database alone, so the nearest wording may have another outcome.
- Whether a wish came true is asked of the database (`Kind.goal`), never of a candidate.
- No two families share a person or a shop. Three things are planted on purpose, each with a task id of its own:
  a duplicate has the statement of its task word by word, a paraphrase says the same otherwise (four grades, from one
  word to every sentence), and a twin has its sentences but another person, another shop and another outcome.
- The same families and seed make the same tasks.

Not covered: language. Users choose among a few written sentences, so no score on these tasks says how people write.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from random import Random
from typing import Any, NamedTuple

import msgspec

from experiential_lab.evaluation.oracle import FIRST, LAST, Desk, address
from experiential_lab.records import Record

MONTHS = "January February March April May June July August September October November December"
MOST_FAMILIES = len(FIRST.split()) * len(LAST.split()) // 2
"""No two families share a person, and a shop with an unused one must be soon found."""

# Sentences that may stand for each other are parted by " | ". Braces name facts of the task, or fields of an answer.

TICKET = "EXISTS (SELECT 1 FROM tickets WHERE customer_id = :customer)"
CANCELLED = "(SELECT group_concat(order_id) FROM orders WHERE status = 'cancelled') = :number"  # this one and no other
MOVED = "EXISTS (SELECT 1 FROM orders WHERE order_id = :number AND ship_to = :ship_to)"
ITEM = "EXISTS (SELECT 1 FROM items WHERE order_id = :number AND sku = :sku AND state = '{}')"
ONCE = "times = 1 AND status ="
KEPT = "times = 1 AND status = 'delivered' AND NOT has_new AND state = 'kept' AND age"


class Kind(NamedTuple):
    """Tasks of one wish in one state of the shop."""

    wish: str
    where: str
    """Rows of `lines` that are such a task."""
    goal: str
    """True in the database when the wish came true; the names are facts of the task."""
    knows: str
    """How its users may name their order: keys of `KNOWS`."""


KINDS = {
    "cancel": Kind("cancel", f"{ONCE} 'processing'", CANCELLED, "number | other_mail | mail | typo | nothing"),
    "cancel_shipped": Kind("cancel", f"{ONCE} 'shipped'", TICKET, "mail | number | nothing"),
    "move": Kind("move", f"{ONCE} 'processing'", MOVED, "number | mail"),
    "move_packed": Kind("move", f"{ONCE} 'packed'", TICKET, "number | mail"),
    "refund": Kind("refund", f"{KEPT} <= 30", ITEM.format("refunded"), "mail | nothing | number"),
    "refund_late": Kind("refund", f"{KEPT} > 30", TICKET, "number | mail"),
    "refund_again": Kind("refund", f"{KEPT} > 0".replace("kept", "refunded"), f"NOT {TICKET}", "number | mail"),
    "swap": Kind("swap", f"{KEPT} <= 30 AND new_in_stock", ITEM.format("exchanged"), "number | mail"),
    "swap_sold_out": Kind("swap", f"{KEPT} <= 30 AND NOT new_in_stock", ITEM.format("refunded"), "number"),
    "track": Kind(
        "track", f"{ONCE} 'shipped' AND silence < 5", f"NOT {TICKET}", "number | other_mail | typo | nothing"
    ),
    "track_lost": Kind("track", f"{ONCE} 'shipped' AND silence >= 5", TICKET, "mail | number | nothing"),
    "track_packed": Kind("track", f"{ONCE} 'packed'", TICKET, "mail | nothing | number"),
    "twice": Kind("twice", "times = 2 AND open_times = 2 AND placed > first_placed", CANCELLED, "mail | nothing"),
}


class Wish(NamedTuple):
    words: str
    """A candidate takes the first wish whose words stand in the first message."""
    tool: str
    whys: str
    statements: str
    openings: str
    """The first message; each trial of a task takes the next one."""


WISHES = {
    "twice": Wish(
        "twice|two times",
        "cancel_order",
        "the page froze | the first confirmation was lost | a second click was one too many",
        "You ordered the {item} two times because {why}, the second time on {day}. The second order has to be cancelled and the first one kept."
        " | The shop has two orders of yours with the {item}: {why}. You want to be rid of the later one, placed on {day}.",
        "I ordered the {item} twice, please cancel one of the two. | I have the {item} twice in my orders because {why}. Please cancel one."
        " | The {item} seems to be on its way two times. One is enough, can you cancel the other?",
    ),
    "cancel": Wish(
        "cancel|call off",
        "cancel_order",
        "the room turned out too small for it | a friend gave me the same one | my car needs a repair first | it was cheaper next door",
        "You ordered the {item} on {day}. Your reason to go back on it: {why}. You want the whole order cancelled; if the shop refuses, somebody has to look into it."
        " | On {day} you bought the {item}, and you say: {why}. Nothing should be sent. You accept a refusal only with a ticket number.",
        "I would like to cancel my order of the {item}{ref}, because {why}. | Please cancel the order with the {item}{ref}: {why}."
        " | Can I still call off an order? It is the one with the {item}{ref}.",
    ),
    "swap": Wish(
        "exchange|swap",
        "exchange_item",
        "it goes better with the room | I clicked on the wrong one | it is meant as a present | mine looks different at home",
        "You got the {item} but want the {new_name} instead, and say: {why}. If it is sold out you take your money back."
        " | The {item} has come and you would rather have the {new_name}; you say: {why}. Only if there is none left, you want a refund.",
        "I would like to exchange the {item}{ref} for the {new_name}, because {why}. | Could you swap the {item}{ref} for the {new_name}?"
        " | The {item} came{ref}, and I would rather exchange it for the {new_name}: {why}.",
    ),
    "refund": Wish(
        "money back|refund",
        "refund_item",
        "arrived damaged | has a deep scratch | smells of paint | does not look like the picture",
        "You got the {item} and it {why}. You want the money back for it; if the desk refuses, a colleague has to decide."
        " | The {item} from your order of {day} {why}. You do not want another one: you ask for a refund, or else for a ticket number.",
        "The {item}{ref} {why}. I want my money back. | I would like a refund for the {item}{ref}, it {why}."
        " | Please refund the {item}{ref}. It {why}, and I do not want a new one.",
    ),
    "move": Wish(
        "address|send it to",
        "change_address",
        "I have moved out already | the office is closed that week | no neighbour takes parcels there | I picked the wrong one in my account",
        "You ordered the {item} on {day}, and now it has to go to {ship_to}. You say: {why}. If that cannot be done, you want a ticket."
        " | Your order of {day} with the {item} would go to the wrong place; the right one is {ship_to}. You explain: {why}. A colleague must answer if the desk refuses.",
        "I need another address for the {item}{ref}, because {why}. | Please send it to {ship_to}: my order of the {item}{ref}. The reason is that {why}."
        " | The address of my order with the {item}{ref} is not right any more. Can it be changed?",
    ),
    "track": Wish(
        "where|parcel|heard",
        "track_parcel",
        "guests come at the weekend | it is a birthday present | I leave for a long journey soon | my old one is broken",
        "You have waited for the {item} since {day}; you say: {why}. You want to know where the parcel is; if it is stuck, somebody has to search for it."
        " | The {item}, ordered on {day}, has not come; you say: {why}. You ask where it is and want it searched for if nothing moves.",
        "Where is my {item}{ref}? I ordered it on {day}, and {why}. | I still wait for the parcel with the {item}{ref}. Is it moving at all?"
        " | Nothing heard of the {item}{ref} since {day}. Can you look where it is?",
    ),
}
KNOWS = {
    "number": ("You have the order number {number}; your e-mail address is {email}.", ""),
    "typo": ("You noted the order number {said}; your e-mail address is {email}.", ""),
    "mail": ("You do not have the order number. You ordered with {email}.", " I ordered with {mail}."),
    "nothing": ("You have no order number, and you give your address {email} when asked for it.", ""),
    "other_mail": (
        "You have no order number. First you give {mail}, and when that fails {email}.",
        " My e-mail is {mail}.",
    ),
}
MANNERS = (
    ("You write in short sentences.", "", " {name}"),
    ("You are polite and patient.", "Good morning. ", " Many thanks, {name}"),
    ("You are in a hurry.", "Hello, {name} here. ", " I am in a hurry."),
    ("You are a little upset.", "This is {name}. ", " Please take this seriously."),
)
AGAIN = {
    "number": "The order has the number {number}, and the account the e-mail {email}.",
    "typo": "On your note stands the order number {said}, and your account is {email}.",
    "mail": "The order number is lost; the account is {email}.",
    "nothing": "Which number the order has you cannot say. Asked for an e-mail, you answer {email}.",
    "other_mail": "No number is at hand. You try {mail} at first and {email} later.",
}
"""`KNOWS` in other words."""
MANNERS_AGAIN = (
    ("You write in short lines.", "Your sentences are brief."),
    ("You are polite and calm.", "Be courteous, and take your time."),
    ("You are in a rush.", "Time is short today."),
    ("You are a little annoyed.", "Let it be felt that this vexes you."),
)
"""`MANNERS` with the last word changed, and in other words."""
GRADES = ("word", "order", "frame", "all")
"""How far a paraphrase goes: the last word is another, the sentences stand in another order, those around the wish are
others, all are others."""
PAIRS = (
    ("cancel", "cancel_shipped"),
    ("move", "move_packed"),
    ("refund", "refund_late"),
    ("swap", "swap_sold_out"),
    ("track", "track_lost"),
    ("refund", "refund_again"),
    ("track", "track_packed"),
)
"""Kinds that read alike and end otherwise: a task of the first, a twin of the second."""
DOZEN = (
    *("duplicate", "paraphrase", "twice", "duplicate", "paraphrase", "twice"),
    *("paraphrase", "once", "once", "paraphrase", "duplicate", "paraphrase"),
)
"""What is planted in a family beside its first task, by its place in the dozen; else how often that one is played."""


class Wording(Record, kw_only=True):
    """Which of the written sentences a task takes."""

    told: str
    """What the user is told to want."""
    knows: str
    """A key of `KNOWS`."""
    why: str
    manner: int | None = None
    """The place in `MANNERS`; None: the shop's seed decides."""


class Task(Record, kw_only=True):
    """What one user wants of one shop."""

    task_id: str
    kind: str
    desk_seed: int
    facts: dict[str, str]
    """What its sentences and the goal of its kind may name."""
    wording: Wording
    statement: str
    openings: tuple[str, ...]


class Planted(NamedTuple):
    """A task of a planned corpus, and why it is there."""

    task: Task
    family: int
    role: str
    """`first` of its family, `duplicate`, or `paraphrase_` and a grade."""
    trials: tuple[int, ...]
    """How often it is played; a number is used once in a family, so that numbers and times differ inside it."""
    twin_of: str | None
    """The task id whose sentences it has, in another family."""


def make_tasks(families: int, seed: int) -> tuple[Task, ...]:
    """Tasks of all kinds in turn, each with a shop and a person of its own, and nothing planted.

    Raises:
        ValueError: fewer than 2 families, or more than there are people for.
    """
    _check_families(families)
    found = _Found(count(seed * 10_000), set())
    tasks = []
    for n in range(families):
        kind = _kind(n)
        row = _situation(KINDS[kind].where, found)
        tasks.append(_worded(f"order-desk-{seed}-{n:03d}", kind, row, _wording(kind, n, n // len(KINDS))))
    return tuple(tasks)


def plan_tasks(name: str, families: int, seed: int, *, first_shop: int = 0) -> tuple[Planted, ...]:
    """Families in dozens: five pairs of twins and two more; of the dozen three have a duplicate, five a paraphrase.

    A dozen has 20 tasks and 30 trials. The last dozen may be cut.

    Raises:
        ValueError: as `make_tasks`.
    """
    _check_families(families)
    found, planted, before = _Found(count(seed * 10_000 + first_shop), set()), list[Planted](), None
    for n in range(families):
        place, base = n % 12, before if n % 12 in (1, 3, 5, 7, 9) else None
        kind, task_id = _planned_kind(n), f"{name}-{seed}-{len(planted):03d}"
        if base:
            task = _twin(base, kind, task_id, found)
        else:
            task = _worded(task_id, kind, _situation(KINDS[kind].where, found), _wording(kind, n // 2, n // 6))
        planted.append(
            Planted(task, n, "first", (0,) if DOZEN[place] == "once" else (0, 1), base.task_id if base else None)
        )
        copy, task_id = DOZEN[place], f"{name}-{seed}-{len(planted):03d}"
        if copy == "duplicate":
            planted.append(Planted(msgspec.structs.replace(task, task_id=task_id), n, copy, (2,), None))
        elif copy == "paraphrase":
            grade = GRADES[n // 12 % len(GRADES)]
            planted.append(Planted(_paraphrased(task, task_id, grade), n, f"{copy}_{grade}", (2,), None))
        before = task
    return tuple(planted)


def is_reached(task: Task, desk: Desk) -> bool:
    """Whether the goal of a task is true in the database of a desk."""
    (reached,) = desk.db.execute(f"SELECT {KINDS[task.kind].goal}", task.facts).fetchone()
    return bool(reached)


def _check_families(families: int) -> None:
    if not 2 <= families <= MOST_FAMILIES:
        raise ValueError(f"{families} families asked for, 2 to {MOST_FAMILIES} can be made with distinct statements")


class _Found(NamedTuple):
    """Where tasks are sought: shops not yet opened, people not yet taken."""

    shops: Iterator[int]
    people: set[str]


def _situation(where: str, found: _Found) -> dict[str, Any]:
    """A row of `lines`, in the next shop where somebody new has such a task."""
    while True:
        shop = next(found.shops)
        with closing(Desk(shop)) as desk:
            for row in desk.db.execute(f"SELECT * FROM lines WHERE {where}"):
                if row["name"] not in found.people:
                    found.people.add(row["name"])
                    return {**row, "desk_seed": shop}


def _planned_kind(n: int) -> str:
    dozen, place = divmod(n, 12)
    if place < 10:
        return PAIRS[(5 * dozen + place // 2) % len(PAIRS)][place % 2]
    return _kind(2 * dozen + place)


def _kind(n: int) -> str:
    return list(KINDS)[n % len(KINDS)]


def _wording(kind: str, n: int, told: int) -> Wording:
    wish = WISHES[KINDS[kind].wish]
    knows, why = _turn(KINDS[kind].knows, n), _turn(wish.whys, n)
    return Wording(told=_turn(wish.statements, told), knows=knows, why=why)


def _worded(task_id: str, kind: str, row: dict[str, Any], wording: Wording) -> Task:
    wish, draw = WISHES[KINDS[kind].wish], Random(row["desk_seed"] * 64 + 63).random
    drawn, knows = int(draw() * len(MANNERS)), wording.knows
    wording = wording if wording.manner is not None else msgspec.structs.replace(wording, manner=drawn)
    manner = MANNERS[wording.manner or 0]
    facts = {key: str(value) for key, value in row.items()}
    facts["said"] = row["number"][:-1] + str((int(row["number"][-1]) + 1) % 10)
    facts["mail"] = row["email"].replace(".org", ".net") if knows == "other_mail" else row["email"]
    facts |= {"day": day_of(row["placed"]), "why": wording.why, "ship_to": address(draw)}
    facts["ref"] = {"number": f" (order {row['number']})", "typo": f" (order {facts['said']})"}.get(knows, "")
    texts = [f"{manner[1]}{text}{KNOWS[knows][1]}{manner[2]}".format(**facts) for text in wish.openings.split(" | ")]
    first = int(draw() * len(texts))
    return Task(
        task_id=task_id,
        kind=kind,
        desk_seed=int(row["desk_seed"]),
        facts=facts,
        wording=wording,
        statement=f"You are {{name}}. {wording.told} {KNOWS[knows][0]} {manner[0]}".format(**facts),
        openings=tuple(texts[first:] + texts[:first]),
    )


def _paraphrased(task: Task, task_id: str, grade: str) -> Task:
    told, knows, manner = task.wording.told, task.wording.knows, task.wording.manner or 0
    if grade == "word":
        said = f"You are {{name}}. {told} {KNOWS[knows][0]} {MANNERS_AGAIN[manner][0]}"
    elif grade == "order":
        said = f"{MANNERS[manner][0]} {KNOWS[knows][0]} You are {{name}}. {told}"
    elif grade == "frame":
        said = f"You are {{name}}. {told} {AGAIN[knows]} {MANNERS_AGAIN[manner][1]}"
    else:
        other = next(each for each in WISHES[KINDS[task.kind].wish].statements.split(" | ") if each != told)
        said = f"{MANNERS_AGAIN[manner][1]} {other} {AGAIN[knows]} Your name is {{name}}."
    return msgspec.structs.replace(task, task_id=task_id, statement=said.format(**task.facts))


def _twin(task: Task, kind: str, task_id: str, found: _Found) -> Task:
    """The same sentences about the same product, of another person in another shop where they end otherwise."""
    row = _situation(f"{KINDS[kind].where} AND sku = '{task.facts['sku']}'", found)
    return _worded(task_id, kind, row, task.wording)


def _turn(options: str, n: int) -> str:
    choices = options.split(" | ")
    return choices[n % len(choices)]


def day_of(moment: str) -> str:
    """A date or moment as people say it.

    >>> day_of("2026-06-08")
    '8 June'
    """
    return f"{int(moment[8:10])} {MONTHS.split()[int(moment[5:7]) - 1]}"
