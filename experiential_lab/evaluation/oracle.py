"""An order desk of a small shop that really runs: what it holds, its tools, and what they return.

- The desk is an SQLite database in memory with its own clock and counter. `Desk.call` takes a tool's name and the exact
  text of its arguments, and returns the exact text of the tool message. It never raises: what it cannot do is answered
  by `{"error": code, "detail": sentence}` with a code of `ERRORS`, and then nothing has changed.
- `seed` decides what the shop holds, `trial` which numbers and times the desk hands out. Those stand in fields that
  `VOLATILE` names, and nowhere else. Same seed, trial and calls: same texts.
- Random numbers come from `random.Random(seed).random()` alone. Nothing depends on a clock, a host or a hash order.

Not covered: more than one user at a time, and shops that live on after a conversation; each conversation opens its own.
"""

import json
import re
import sqlite3
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from random import Random
from typing import Any

from experiential_lab.records import Json

Draw = Callable[[], float]

FIRST = "Ada Amir Astrid Bao Carla Chidi Dora Emeka Farah Goran Hana Ines Jonas Kaito Leïla Mateo Nadia Oskar Priya Rafael Sanna Tomás Uma Zoë"
LAST = "Abel Bergström Castro Dimitrov Eriksen Ferrari Gupta Haddad Ivanova Jansen Kovács Larsen Moreau Nakamura Okafor Petrov Quist Rossi Sato Torres Ueda Vargas Weber Yilmaz"
PLAIN = str.maketrans("ïáëö ", "iaeo.")
STREETS = "Quay Street | Mill Lane | Station Road | Orchard Walk | Harbour Row | Chapel Hill | Bridge End | Linden Way"
TOWNS = "20110 Northport | 31450 Millbrook | 47900 Eastvale | 58220 Stonebury | 66300 Lakeham"
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
    names = dict.fromkeys(f"{pick(draw, FIRST, ' ')} {pick(draw, LAST, ' ')}" for _ in range(12))
    number = 20_000 + int(draw() * 9_000)
    for n, name in enumerate(names):
        customer, email = f"C-{1000 + 17 * n + int(draw() * 17)}", f"{name.lower().translate(PLAIN)}@example.org"
        db.execute("INSERT INTO customers VALUES (?, ?, ?, ?)", (customer, name, email, address(draw).split()[-1]))
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
    where = (scan and f"{address(draw).split()[-1]} depot", address(draw))
    db.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*key, status, *dates, *where))
    for sku in dict.fromkeys(PRODUCTS[int(draw() * len(PRODUCTS))][:7] for _ in range(1 + int(draw() * 3))):
        state = "refunded" if status == "delivered" and draw() < 0.2 else "kept"
        db.execute("INSERT INTO items VALUES (?, ?, ?, ?)", (key[0], sku, 1 + (draw() < 0.2), state))
        if state == "refunded":
            db.execute("INSERT INTO history VALUES (?, ?, ?)", (key[0], f"{scan}T16:20:00Z", f"{sku} refunded: broken"))


def pick(draw: Draw, options: str, between: str = " | ") -> str:
    """One of the options that stand between separators."""
    choices = options.split(between)
    return choices[int(draw() * len(choices))]


def address(draw: Draw) -> str:
    """An address that somebody may have."""
    return f"{1 + int(draw() * 80)} {pick(draw, STREETS)}, {pick(draw, TOWNS)}"
