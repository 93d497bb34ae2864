"""An order desk of a small shop that really runs, and the conversations that scripted candidates and users have at it.

- The desk is an SQLite database in memory with its own clock and counter. `Desk.call` takes a tool's name and the exact
  text of its arguments, and returns the exact text of the tool message. It never raises: what it cannot do is answered
  by `{"error": code, "detail": sentence}` with a code of `ERRORS`, and then nothing has changed.
- `seed` decides what the shop holds, `trial` which numbers and times the desk hands out. Those stand in fields that
  `VOLATILE` names, and nowhere else. Same seed, trial and calls: same texts.
- A task is found in a shop by a query, never planted. Kinds that share a wish share their sentences: whether an order
  can still be cancelled is known to the database alone, so the nearest wording may have another outcome.
- A candidate reads only what stands in the messages, as a model would, and slips at stated rates. Whether the wish came
  true is asked of the database (`Episode.reached`), never of the candidate.
- A user answers questions in sentences, and closes on the first message without a question mark.
- Random numbers come from `random.Random(seed).random()` alone. Nothing depends on a clock, a host or a hash order.

Not covered: language. Users and candidates choose among a few written sentences, so no score on this corpus says how
people write. The file is long because the desk, the people and their sentences are one world; a third of it is tables.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, datetime, time, timedelta
from itertools import count
from random import Random
from typing import Any, NamedTuple

from experiential_lab.records import Json, Record

Draw = Callable[[], float]

FIRST = "Ada Amir Astrid Bao Carla Chidi Dora Emeka Farah Goran Hana Ines Jonas Kaito Leïla Mateo Nadia Oskar Priya Rafael Sanna Tomás Uma Zoë"
LAST = "Abel Bergström Castro Dimitrov Eriksen Ferrari Gupta Haddad Ivanova Jansen Kovács Larsen Moreau Nakamura Okafor Petrov Quist Rossi Sato Torres Ueda Vargas Weber Yilmaz"
PLAIN = str.maketrans("ïáëö ", "iaeo.")
STREETS = "Quay Street | Mill Lane | Station Road | Orchard Walk | Harbour Row | Chapel Hill | Bridge End | Linden Way"
TOWNS = "20110 Northport | 31450 Millbrook | 47900 Eastvale | 58220 Stonebury | 66300 Lakeham"
MONTHS = "January February March April May June July August September October November December"
MOST_FAMILIES = len(FIRST.split()) * len(LAST.split()) // 2
"""No two families share a person, and a shop with an unused one must be soon found."""
PRODUCTS = """\
LAM-OAK 4900 oak desk lamp | LAM-ASH 4700 ash desk lamp | MUG-BLU 1450 blue stoneware mug
MUG-GRN 1450 green stoneware mug | RUG-SML 8900 small wool rug | RUG-LRG 14900 large wool rug
KET-BLK 6200 black pour-over kettle | KET-COP 7400 copper pour-over kettle | BLA-GRY 5400 grey linen blanket
BLA-RST 5400 rust linen blanket | CHA-BIR 7900 birch folding chair | CHA-WAL 8600 walnut folding chair
CLO-RND 3900 round wall clock | CLO-SQR 3950 square wall clock | BOA-SML 2200 small chopping board
BOA-LRG 3600 large chopping board""".replace("\n", " | ").split(" | ")
SCHEMA = """
CREATE TABLE shop(today TEXT);
CREATE TABLE customers(customer_id TEXT PRIMARY KEY, name TEXT, email TEXT, city TEXT);
CREATE TABLE products(sku TEXT PRIMARY KEY, price_cents INTEGER, name TEXT, in_stock INTEGER);
CREATE TABLE orders(order_id TEXT PRIMARY KEY, customer_id TEXT, status TEXT, placed TEXT, delivered TEXT,
    last_scan TEXT, place TEXT, ship_to TEXT);
CREATE TABLE items(order_id TEXT, sku TEXT, quantity INTEGER, state TEXT, PRIMARY KEY(order_id, sku));
CREATE TABLE history(order_id TEXT, at TEXT, what TEXT);
CREATE TABLE tickets(ticket_id TEXT PRIMARY KEY, customer_id TEXT, topic TEXT, note TEXT, opened_at TEXT);
CREATE VIEW lines AS  -- one row an item of an order: what a task may be about; `new` is the other make of the product
    SELECT o.order_id AS number, o.customer_id AS customer, c.name, c.email, o.placed, o.status, i.state, i.sku,
        p.name AS item, n.sku AS new_sku, n.name AS new_name, n.in_stock AS new_in_stock,
        julianday(today) - julianday(o.delivered) AS age, julianday(today) - julianday(o.last_scan) AS silence,
        min(b.placed) AS first_placed, count(*) AS times, sum(b.status = 'processing') AS open_times, EXISTS (SELECT 1
            FROM orders JOIN items USING (order_id) WHERE customer_id = o.customer_id AND sku = n.sku) AS has_new
    FROM shop, orders o JOIN customers c USING (customer_id) JOIN items i USING (order_id) JOIN products p USING (sku)
        JOIN products n ON substr(n.sku, 1, 3) = substr(i.sku, 1, 3) AND n.sku <> i.sku
        JOIN items j ON j.sku = i.sku JOIN orders b ON b.order_id = j.order_id AND b.customer_id = o.customer_id
    GROUP BY o.order_id, i.sku ORDER BY o.order_id, i.sku;
"""
RETURN_DAYS, SILENT_DAYS = 30, 5
POLICY = """You serve the order desk of a small home shop. Today is {today}.
Read an order before you change it, and again afterwards. Guess no order number, SKU or address.
Orders can be cancelled or sent elsewhere only while they are processing.
Delivered items can be refunded or exchanged for 30 days, once. Look at the stock before an exchange.
A parcel without a scan for 5 days counts as lost. Open a ticket for a lost parcel and for anything that the desk refuses; what was done already needs none.
Answer in plain sentences, with the number that the desk returned."""

ERRORS = (
    "unknown_tool",
    "bad_argument",
    "unknown_customer",
    "unknown_order",
    "unknown_item",
    "unknown_product",
    "wrong_state",
    "not_cancellable",
    "not_changeable",
    "window_closed",
    "already_returned",
    "out_of_stock",
)
VOLATILE = (
    "answer_by",
    "at",
    "cancelled_at",
    "changed_at",
    "confirmation",
    "exchange_id",
    "opened_at",
    "refund_id",
    "ticket_id",
)
STATES = {
    "cancel_order": ("not_cancellable", "processing"),
    "change_address": ("not_changeable", "processing"),
    "track_parcel": ("wrong_state", "shipped delivered"),
    "refund_item": ("wrong_state", "delivered"),
    "exchange_item": ("wrong_state", "delivered"),
}
"""The states in which an order can be, and the error when it is in another."""
STATUS = "processing packed shipped delivered cancelled"


def _tool(name: str, description: str, arguments: str, **choices: str) -> dict[str, Any]:
    """A schema; an argument with `?` may be left out."""
    properties: dict[str, Any] = {argument: {"type": "string"} for argument in arguments.replace("?", "").split()}
    for argument, values in choices.items():
        properties[argument]["enum"] = values.split()
    required = [argument for argument in arguments.split() if not argument.endswith("?")]
    closed = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": closed}}


TOOLS = (
    _tool("find_customer", "Customers with this e-mail address or full name; give one of them.", "email? name?"),
    _tool("list_orders", "Orders of a customer, newest first.", "customer_id status?", status=STATUS),
    _tool("get_order", "One order with its items, address and history.", "order_id"),
    _tool("track_parcel", "Last scan of an order's parcel.", "order_id"),
    _tool("check_stock", "Products whose name has all these words, with price and stock.", "words"),
    _tool("change_address", "Send an order elsewhere.", "order_id ship_to"),
    _tool("cancel_order", "Cancel a whole order.", "order_id reason", reason="changed_mind ordered_twice too_slow"),
    _tool("refund_item", "Pay an item back.", "order_id sku reason", reason="broken not_as_described unwanted"),
    _tool("exchange_item", "Send another product instead of an item.", "order_id sku new_sku"),
    _tool("open_ticket", "Hand a case to a colleague.", "customer_id topic note", topic="refused lost_parcel other"),
)
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


class _Refused(Exception):
    """What a call asks cannot be done; `Desk.call` makes it the answer."""


class Desk:
    """A database, a clock and a counter behind the tools of `TOOLS`. Close it after use (`contextlib.closing`)."""

    def __init__(self, seed: int, *, trial: int = 0) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.row_factory = sqlite3.Row
        self.db.executescript(SCHEMA)
        self.today = _fill(self.db, Random(seed).random)
        self._draw = Random(seed * 64 + trial).random
        self._now = datetime.combine(self.today, time(8)) + timedelta(seconds=int(self._draw() * 30_000))
        self._count = 10_000 + int(self._draw() * 80_000)

    def close(self) -> None:
        self.db.close()

    def call(self, tool: str, arguments: str) -> str:
        """The exact text of the tool message that answers this call."""
        self._now += timedelta(seconds=5 + int(self._draw() * 55))
        try:
            given = _checked(tool, arguments)
            answer = getattr(self, f"_{tool}")(**given)
        except _Refused as refused:
            answer = dict(zip(("error", "detail"), refused.args, strict=True))
        return json.dumps(answer, ensure_ascii=False)

    def _find_customer(self, email: str | None = None, name: str | None = None) -> Json:
        if email is None and name is None:
            raise _Refused("bad_argument", "find_customer needs email or name")
        where = "email = lower(coalesce(?, email)) AND name = coalesce(?, name) ORDER BY customer_id"
        return self._rows(f"SELECT * FROM customers WHERE {where}", email, name)

    def _list_orders(self, customer_id: str, status: str | None = None) -> Json:
        self._one("customer", customer_id)
        where = "customer_id = ? AND status = coalesce(?, status) ORDER BY placed DESC, order_id DESC"
        orders = self._rows(f"SELECT order_id, placed, status FROM orders WHERE {where}", customer_id, status)
        return [order | {"items": [item["name"] for item in self._items(order["order_id"])]} for order in orders]

    def _get_order(self, order_id: str) -> Json:
        order, items = self._one("order", order_id), self._items(order_id)
        keys = ("order_id", "customer_id", "status", "placed", "delivered", "ship_to")
        history = self._rows("SELECT at, what FROM history WHERE order_id = ? ORDER BY rowid", order_id)
        shown = {key: order[key] for key in keys if order[key]}
        return shown | {"items": items, "total_cents": _total(items), "history": history}

    def _track_parcel(self, order_id: str) -> Json:
        order = self._in_state("track_parcel", order_id)
        shown = {key: order[key] for key in ("order_id", "status", "last_scan", "place")}
        return shown | {"parcel": f"P{order_id[2:]}0"}

    def _check_stock(self, words: str) -> Json:
        products = self._rows("SELECT * FROM products ORDER BY sku")
        return [product for product in products if {*words.lower().split()} <= {*product["name"].split()}]

    def _change_address(self, order_id: str, ship_to: str) -> Json:
        self._in_state("change_address", order_id)
        self._set("orders SET ship_to = ? WHERE order_id = ?", ship_to, order_id)
        self._note(order_id, "address changed")
        changed = {"order_id": order_id, "ship_to": ship_to}
        return changed | {"confirmation": self._number("K"), "changed_at": self._moment()}

    def _cancel_order(self, order_id: str, reason: str) -> Json:
        self._in_state("cancel_order", order_id)
        self._set("orders SET status = 'cancelled' WHERE order_id = ?", order_id)
        for item in (items := self._items(order_id)):
            self._set("products SET in_stock = in_stock + ? WHERE sku = ?", item["quantity"], item["sku"])
        self._note(order_id, f"cancelled: {reason}")
        cancelled = {"order_id": order_id, "status": "cancelled", "paid_back_cents": _total(items)}
        return cancelled | {"confirmation": self._number("K"), "cancelled_at": self._moment()}

    def _refund_item(self, order_id: str, sku: str, reason: str) -> Json:
        item = self._returnable("refund_item", order_id, sku)
        self._set("items SET state = 'refunded' WHERE order_id = ? AND sku = ?", order_id, sku)
        self._note(order_id, f"{sku} refunded: {reason}")
        refund = {"refund_id": self._number("R"), "order_id": order_id, "sku": sku}
        return refund | {"paid_back_cents": _total([item]), "at": self._moment()}

    def _exchange_item(self, order_id: str, sku: str, new_sku: str) -> Json:
        new, item = self._one("product", new_sku), self._returnable("exchange_item", order_id, sku)
        if new["in_stock"] < (pieces := item["quantity"]):
            raise _Refused("out_of_stock", f"{new_sku}: {pieces} needed, {new['in_stock']} in stock")
        self._set("products SET in_stock = in_stock - ? WHERE sku = ?", pieces, new_sku)
        self._set("items SET state = 'exchanged' WHERE order_id = ? AND sku = ?", order_id, sku)
        self._note(order_id, f"{sku} exchanged for {new_sku}")
        exchange = {"exchange_id": self._number("X"), "order_id": order_id, "sku": sku, "new_sku": new_sku}
        return exchange | {"to_pay_cents": pieces * (new["price_cents"] - item["price_cents"])}

    def _open_ticket(self, customer_id: str, topic: str, note: str) -> Json:
        self._one("customer", customer_id)
        ticket, opened = self._number("T"), self._moment()
        self.db.execute("INSERT INTO tickets VALUES (?, ?, ?, ?, ?)", (ticket, customer_id, topic, note, opened))
        return {"ticket_id": ticket, "topic": topic, "opened_at": opened, "answer_by": self._moment(hours=24)}

    def _rows(self, sql: str, *values: str | None) -> list[dict[str, Any]]:
        return [dict(row) for row in self.db.execute(sql, values)]

    def _one(self, noun: str, key: str) -> dict[str, Any]:
        column = "sku" if noun == "product" else f"{noun}_id"
        for row in self._rows(f"SELECT * FROM {noun}s WHERE {column} = ?", key):
            return row
        raise _Refused(f"unknown_{noun}", f"no {noun} {key}")

    def _items(self, order_id: str) -> list[dict[str, Any]]:
        columns = "sku, name, quantity, price_cents, state FROM items JOIN products USING (sku)"
        return self._rows(f"SELECT {columns} WHERE order_id = ? ORDER BY sku", order_id)

    def _in_state(self, tool: str, order_id: str) -> dict[str, Any]:
        order, (code, states) = self._one("order", order_id), STATES[tool]
        if order["status"] not in states.split():
            raise _Refused(code, f"order {order_id} is {order['status']}, not {states.replace(' ', ' or ')}")
        return order

    def _returnable(self, tool: str, order_id: str, sku: str) -> dict[str, Any]:
        delivered = self._in_state(tool, order_id)["delivered"]
        item = next((item for item in self._items(order_id) if item["sku"] == sku), None)
        if item is None:
            raise _Refused("unknown_item", f"order {order_id} has no item {sku}")
        if item["state"] != "kept":
            raise _Refused("already_returned", f"{sku} of order {order_id} is {item['state']} already")
        if (age := (self.today - date.fromisoformat(delivered)).days) > RETURN_DAYS:
            raise _Refused("window_closed", f"order {order_id} was delivered {age} days ago, more than {RETURN_DAYS}")
        return item

    def _set(self, assignment: str, *values: str | int) -> None:
        self.db.execute(f"UPDATE {assignment}", values)

    def _note(self, order_id: str, what: str) -> None:
        self.db.execute("INSERT INTO history VALUES (?, ?, ?)", (order_id, self._moment(), what))

    def _number(self, letter: str) -> str:
        self._count += 1 + int(self._draw() * 40)
        return f"{letter}-{self._count}"

    def _moment(self, *, hours: int = 0) -> str:
        return f"{(self._now + timedelta(hours=hours)).isoformat()}Z"


def _checked(tool: str, arguments: str) -> dict[str, str]:
    """The arguments, when they are what the tool's schema declares."""
    if tool not in PARAMETERS:
        raise _Refused("unknown_tool", f"the desk has {', '.join(PARAMETERS)}")
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise _Refused("bad_argument", "the arguments are no JSON object")
    properties, required = PARAMETERS[tool]["properties"], PARAMETERS[tool]["required"]
    if not set(required) <= given.keys() <= properties.keys():
        raise _Refused("bad_argument", f"{tool} takes {', '.join(properties)}")
    for name, value in given.items():
        if not isinstance(value, str) or not re.fullmatch(r"[^\ud800-\udfff]{1,200}", value):
            raise _Refused("bad_argument", f"{name} must be a text of 1 to 200 characters")
        if value not in (choices := properties[name].get("enum", [value])):
            raise _Refused("bad_argument", f"{name} must be one of {', '.join(choices)}")
    return given


def _total(items: list[dict[str, Any]]) -> int:
    return sum(item["quantity"] * item["price_cents"] for item in items)


def _fill(db: sqlite3.Connection, draw: Draw) -> date:
    """Put products, customers and orders into an empty shop; the day on which it stands."""
    today = date(2026, 1, 5) + timedelta(days=int(draw() * 300))
    db.execute("INSERT INTO shop VALUES (?)", (str(today),))
    for product in PRODUCTS:
        stock = 0 if draw() < 0.3 else 2 + int(draw() * 12)
        db.execute("INSERT INTO products VALUES (?, ?, ?, ?)", (*product.split(" ", 2), stock))
    names = dict.fromkeys(f"{_pick(draw, FIRST, ' ')} {_pick(draw, LAST, ' ')}" for _ in range(12))
    number = 20_000 + int(draw() * 9_000)
    for n, name in enumerate(names):
        customer, email = f"C-{1000 + 17 * n + int(draw() * 17)}", f"{name.lower().translate(PLAIN)}@example.org"
        db.execute("INSERT INTO customers VALUES (?, ?, ?, ?)", (customer, name, email, _address(draw).split()[-1]))
        for _ in range(1 + int(draw() * 3)):
            number += 11 + int(draw() * 80)  # at least 11 apart: one wrong last digit names no order
            _add_order(db, draw, today, (f"W-{number}", customer))
    for (order,) in db.execute("SELECT order_id FROM orders WHERE status = 'processing'").fetchall():
        if draw() < 0.3:  # somebody ordered the same again, a day later
            number += 11 + int(draw() * 80)
            again = "customer_id, status, date(placed, '+1 day'), delivered, last_scan, place, ship_to FROM orders"
            for table, columns in (("orders", again), ("items", "sku, quantity, state FROM items")):
                db.execute(f"INSERT INTO {table} SELECT ?, {columns} WHERE order_id = ?", (f"W-{number}", order))
    return today


def _add_order(db: sqlite3.Connection, draw: Draw, today: date, key: tuple[str, str]) -> None:
    status = STATUS.split()[int(draw() * 4)]
    silent = {"shipped": int(draw() * 9), "delivered": 2 + int(draw() * 58)}.get(status)  # days since the last scan
    placed = str(today - timedelta(days=(silent or 0) + 2 + int(draw() * 2)))
    scan = None if silent is None else str(today - timedelta(days=silent))
    dates = (placed, scan if status == "delivered" else None, scan)
    where = (scan and f"{_address(draw).split()[-1]} depot", _address(draw))
    db.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*key, status, *dates, *where))
    for sku in dict.fromkeys(PRODUCTS[int(draw() * len(PRODUCTS))][:7] for _ in range(1 + int(draw() * 3))):
        state = "refunded" if status == "delivered" and draw() < 0.2 else "kept"
        db.execute("INSERT INTO items VALUES (?, ?, ?, ?)", (key[0], sku, 1 + (draw() < 0.2), state))
        if state == "refunded":
            db.execute("INSERT INTO history VALUES (?, ?, ?)", (key[0], f"{scan}T16:20:00Z", f"{sku} refunded: broken"))


def _pick(draw: Draw, options: str, between: str = " | ") -> str:
    choices = options.split(between)
    return choices[int(draw() * len(choices))]


def _address(draw: Draw) -> str:
    return f"{1 + int(draw() * 80)} {_pick(draw, STREETS)}, {_pick(draw, TOWNS)}"


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


class Task(Record, kw_only=True):
    """What one user wants of one shop."""

    task_id: str
    kind: str
    desk_seed: int
    facts: dict[str, str]
    """What its sentences and the goal of its kind may name."""
    statement: str
    openings: tuple[str, ...]


class Episode(Record, kw_only=True):
    """A conversation that was really had."""

    task: Task
    candidate: str
    trial: int
    messages: tuple[dict[str, Any], ...]
    reached: bool
    """The goal of the task is true in the database."""


def make_desk_tools(families: int = 24, seed: int = 7) -> bytes:
    """A file of OpenAI chats, one a line, UTF-8: every task is played by every candidate, one trial each.

    Raises:
        ValueError: fewer than 2 families, or more than there are people for.
    """
    tasks = make_tasks(families, seed)
    return b"".join(_line(play(task, who, trial=n)) for task in tasks for n, who in enumerate(CANDIDATES))


def make_tasks(families: int, seed: int) -> tuple[Task, ...]:
    """Tasks of all kinds in turn, each with a shop and a person of its own.

    Raises:
        ValueError: as `make_desk_tools`.
    """
    if not 2 <= families <= MOST_FAMILIES:
        raise ValueError(f"{families} families asked for, 2 to {MOST_FAMILIES} can be made with distinct statements")
    shops, people = count(seed * 10_000), set[str]()
    return tuple(_task(f"order-desk-{seed}-{n:03d}", n, _situation(n, shops, people)) for n in range(families))


def play(task: Task, who: Candidate, *, trial: int) -> Episode:
    """Let a candidate serve the user of a task at a fresh desk."""
    with closing(Desk(task.desk_seed, trial=trial)) as desk:
        talk = _Talk(task, who, desk=desk, trial=trial)
        _serve(talk)
        (reached,) = desk.db.execute(f"SELECT {KINDS[task.kind].goal}", task.facts).fetchone()
    return Episode(task=task, candidate=who.name, trial=trial, messages=tuple(talk.messages), reached=bool(reached))


def _line(episode: Episode) -> bytes:
    task, trial = episode.task, episode.trial
    metadata = {"user_source": "simulated_user", "task_id": task.task_id, "statement": task.statement, "trial": trial}
    more = {"complete": True, "environment": "oracle", "desk_seed": task.desk_seed, "candidate": episode.candidate}
    chat = {
        "conversation": f"{task.task_id}-{trial}",
        "messages": episode.messages,
        "tools": TOOLS,
        "metadata": metadata | more,
    }
    return json.dumps(chat, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _situation(n: int, shops: Iterator[int], people: set[str]) -> dict[str, Any]:
    """A row of `lines` for task `n`, in the next shop where somebody new has such a task."""
    where = list(KINDS.values())[n % len(KINDS)].where
    while True:
        shop = next(shops)
        with closing(Desk(shop)) as desk:
            for row in desk.db.execute(f"SELECT * FROM lines WHERE {where}"):
                if row["name"] not in people:
                    people.add(row["name"])
                    return {**row, "desk_seed": shop}


def _task(task_id: str, n: int, row: dict[str, Any]) -> Task:
    kind, draw = list(KINDS)[n % len(KINDS)], Random(row["desk_seed"] * 64 + 63).random
    wish, manner = WISHES[KINDS[kind].wish], MANNERS[int(draw() * len(MANNERS))]
    knows, why = _turn(KINDS[kind].knows, n), _turn(wish.whys, n)
    told = _turn(wish.statements, n // len(KINDS))
    facts = {key: str(value) for key, value in row.items()}
    facts["said"] = row["number"][:-1] + str((int(row["number"][-1]) + 1) % 10)
    facts["mail"] = row["email"].replace(".org", ".net") if knows == "other_mail" else row["email"]
    facts |= {"day": _day(row["placed"]), "why": why, "ship_to": _address(draw)}
    facts["ref"] = {"number": f" (order {row['number']})", "typo": f" (order {facts['said']})"}.get(knows, "")
    statement = f"You are {{name}}. {told} {KNOWS[knows][0]} {manner[0]}".format(**facts)
    texts = [f"{manner[1]}{text}{KNOWS[knows][1]}{manner[2]}".format(**facts) for text in wish.openings.split(" | ")]
    first, desk_seed = int(draw() * len(texts)), int(row["desk_seed"])
    openings = tuple(texts[first:] + texts[:first])
    return Task(task_id=task_id, kind=kind, desk_seed=desk_seed, facts=facts, statement=statement, openings=openings)


def _turn(options: str, n: int) -> str:
    choices = options.split(" | ")
    return choices[n % len(choices)]


def _day(moment: str) -> str:
    return f"{int(moment[8:10])} {MONTHS.split()[int(moment[5:7]) - 1]}"


class _Talk:
    """A conversation while it is had: what the candidate may read, do and say."""

    def __init__(self, task: Task, who: Candidate, *, desk: Desk, trial: int) -> None:
        self.task, self.who, self.desk = task, who, desk
        self.draw = Random(task.desk_seed * 64 + 32 + trial).random
        self.heard = task.openings[trial % len(task.openings)]
        policy = POLICY.format(today=_day(str(desk.today)))
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": policy},
            {"role": "user", "content": self.heard},
        ]

    def slips(self, rate: str) -> bool:
        chance: int = getattr(self.who, rate)
        return self.draw() * 100 < chance and (rate != "guesses" or len(self.messages) < 5)

    def say(self, sentences: str, **facts: Any) -> None:
        """Say one of the sentences; the user answers its question, or closes."""
        said = _pick(self.draw, sentences).format(**facts)
        fitting = [_pick(self.draw, answer) for words, answer in ANSWERS.items() if words in said]
        answer = fitting[0] if "?" in said else _pick(self.draw, SAD if "orry" in said else GLAD)
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
            turn["content"] = _pick(self.draw, BESIDE)
        results = []
        for n, (tool, arguments) in enumerate(calls):
            function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
            call_id = f"call_{len(self.messages) + n:02d}{int(self.draw() * 16**6):06x}"  # the place makes it unique
            turn["tool_calls"].append({"id": call_id, "type": "function", "function": function})
            text = self.desk.call(tool, function["arguments"])
            results.append({"role": "tool", "tool_call_id": call_id, "name": tool, "content": text})
        self.messages += [turn, *results]
        return [json.loads(result["content"]) for result in results]


def _serve(talk: _Talk) -> None:
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
        return talk.say(RETURNED, paid=_day(paid), **order)
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


def _find_order(talk: _Talk) -> dict[str, Any]:
    number = re.search(r"W-\d+", talk.heard)
    if not number:
        return _look_up(talk)
    if talk.slips("guesses"):
        return {"order_id": number[0]}
    order: dict[str, Any] = talk.do("get_order", order_id=number[0])
    return _look_up(talk) if "error" in order else order


def _look_up(talk: _Talk) -> dict[str, Any]:
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
    talk.say(ASK_ORDER, later=_day(later["placed"]), earlier=_day(earlier["placed"]))
    meant, other = (later, earlier) if _day(later["placed"]) in talk.heard else (earlier, later)
    return {**meant, "customer_id": customer, "other": other["order_id"]}


def _arguments(talk: _Talk, wish: str, order: dict[str, Any]) -> dict[str, str]:
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


def _refund_instead(talk: _Talk, order: dict[str, Any]) -> None:
    talk.say(ASK_REFUND, **order)
    answer = talk.do("refund_item", order_id=order["order_id"], sku=order["sku"], reason="unwanted")
    _tell(talk, "refund_item", order, answer=answer)


def _tell(talk: _Talk, tool: str, order: dict[str, Any], *, answer: dict[str, Any]) -> None:
    """Say what came of it; the policy asks for a look at the order first, or for a ticket."""
    if "error" in answer:
        return _hand_over(talk, order, answer["detail"])
    if tool == "track_parcel":
        silent = (talk.desk.today - date.fromisoformat(answer["last_scan"])).days  # the policy says what today is
        if silent >= SILENT_DAYS and not talk.slips("forgets"):
            why = f"parcel {answer['parcel']} had no scan for {silent} days"
            return _hand_over(talk, order, why, topic="lost_parcel")
    read = [("get_order", {"order_id": order[key]}) for key in ("order_id", "other") if key in order]
    if tool != "track_parcel" and len(talk.messages) + len(read) <= 13 and not talk.slips("forgets"):
        talk.do_all(*read)
    talk.say(REPORTS[tool], **order | _spoken(answer))


def _hand_over(talk: _Talk, order: dict[str, Any], why: str, *, topic: str = "refused") -> None:
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
            spoken[key] = _day(value) if re.match(r"\d{4}-\d\d-\d\d", str(value)) else value
    return spoken
