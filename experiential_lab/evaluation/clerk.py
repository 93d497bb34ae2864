"""A clerk who runs the order desk for somebody who only writes sentences, and answers in sentences.

- A request is one of the sentences of `REQUESTS`, in any case, anywhere in a message; of several the first in that table
  counts. What the clerk does not understand changes nothing and is answered with `NOT_UNDERSTOOD`.
- The clerk says all that the desk returned, and nothing else: `read_reply` gives back the desk's answer.
- `Submit: ...` ends the conversation. The answer is accepted or refused, as the goal of the task is true in the
  database or not; what the submission says is not read.
- Numbers and times that the desk hands out look like `VOLATILE_TEXT`, and nothing else does.

Not covered: several requests in one message, and free wording. An agent is told the sentences (`PROTOCOL`).
"""

import json
import re
from typing import Any

from experiential_lab.evaluation.oracle import PARAMETERS, STATUS, Desk
from experiential_lab.evaluation.tasks import Task, is_reached
from experiential_lab.records import Json

REQUESTS = {
    "find_customer": "Find the customer with the e-mail {email}. | Find the customer with the name {name}.",
    "list_orders": "List the orders of {customer_id}. | List the {status} orders of {customer_id}.",
    "get_order": "Show order {order_id}.",
    "track_parcel": "Track the parcel of order {order_id}.",
    "check_stock": "Count the stock of {words}.",
    "change_address": "Send order {order_id} to {ship_to}.",
    "cancel_order": "Cancel order {order_id} with the reason {reason}.",
    "refund_item": "Refund {sku} of order {order_id} with the reason {reason}.",
    "exchange_item": "Exchange {sku} of order {order_id} for {new_sku}.",
    "open_ticket": "Open a ticket for {customer_id} about {topic}: {note}.",
}
CHOICES = {
    name: " or ".join(schema["enum"]).replace("_", " ")
    for tool in ("cancel_order", "refund_item", "open_ticket")
    for name, schema in PARAMETERS[tool]["properties"].items()
    if "enum" in schema
}
SUBMIT, ACCEPTED, REFUSED = "Submit: {report}", "Accepted. The case is closed.", "Refused. The case is not settled."
NOT_UNDERSTOOD = "I do not understand this. Write one of the sentences that I know."
NOTHING = {
    "find_customer": "There is no such customer.",
    "list_orders": "There are no such orders.",
    "check_stock": "No product is called that.",
}
REPLIES = {
    "find_customer": "Customer {customer_id} is {name} of {city}, e-mail {email}.",
    "list_orders": "Order {order_id} of {placed} is {status}, with {items}.",
    "get_order": "Order {order_id} of {customer_id} is {status}, placed {placed}, to {ship_to}, for {total_cents} cents.",
    "track_parcel": "Parcel {parcel} of order {order_id} is {status}, last scanned {last_scan} at {place}.",
    "check_stock": "Of {sku}, {name}, at {price_cents} cents there are {in_stock} in stock.",
    "change_address": "Order {order_id} goes to {ship_to} now. Confirmation {confirmation} of {changed_at}.",
    "cancel_order": "Order {order_id} is {status}, {paid_back_cents} cents go back. Confirmation {confirmation} of {cancelled_at}.",
    "refund_item": "{sku} of order {order_id} is refunded, {paid_back_cents} cents go back. Refund {refund_id} of {at}.",
    "exchange_item": "{sku} of order {order_id} is exchanged for {new_sku}, {to_pay_cents} cents to pay. Exchange {exchange_id}.",
    "open_ticket": "Ticket {ticket_id} about {topic} was opened {opened_at}. Answer by {answer_by}.",
}
ITEM = "It holds {quantity} of {sku}, {name}, at {price_cents} cents, {state}."
DELIVERED = "It was delivered {delivered}."
NOTED = "On {at} {what}."
ERROR = "That cannot be done, {error}: {detail}."
VOLATILE_TEXT = r"\b[KRXT]-\d{5,}\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
"""What stands in a sentence for the fields of `VOLATILE`; dates without a time are state."""


COUNTS = {"quantity", "price_cents", "total_cents", "in_stock", "paid_back_cents", "to_pay_cents"}
MOMENT, WORD = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", r"\S+?"
SHAPES = (
    dict.fromkeys(COUNTS, r"-?\d+")
    | dict.fromkeys(("order_id", "customer_id", "sku", "new_sku", "email", "placed", "delivered", "error"), WORD)
    | dict.fromkeys(("at", "opened_at", "changed_at", "cancelled_at", "answer_by"), MOMENT)
    | {"status": STATUS.replace(" ", "|")}
)
"""How a field looks in a sentence, where `.+?` would take too much."""


def _protocol() -> str:
    lines = [sentence for sentences in (*REQUESTS.values(), SUBMIT) for sentence in sentences.split(" | ")]
    return "\n".join(re.sub(r"{(\w+)}", r"<\1>", line) for line in lines)


PROTOCOL = f"""The clerk knows these sentences, one a message; the last one ends the case.
{_protocol()}"""


class Clerk:
    """Answers messages about one task at one desk, until something is submitted."""

    def __init__(self, desk: Desk, task: Task) -> None:
        self.desk = desk
        self.task = task
        self.accepted: bool | None = None
        """None while nothing is submitted."""

    def answer(self, message: str) -> str:
        """The reply to a message; a submission is answered accepted or refused."""
        if re.search(r"\bsubmit:", message, re.I):
            self.accepted = is_reached(self.task, self.desk)
            return ACCEPTED if self.accepted else REFUSED
        request = read_request(message)
        if request is None:
            return NOT_UNDERSTOOD
        tool, arguments = request
        return write_reply(tool, json.loads(self.desk.call(tool, json.dumps(arguments, ensure_ascii=False))))


def write_request(tool: str, arguments: dict[str, str]) -> str:
    """The sentence that asks for a call; an argument that it needs and does not get is `unknown`."""
    fitting = REQUESTS[tool].split(" | ")
    sentence = max(fitting, key=lambda each: len(_fields(each) & arguments.keys()))
    said = {name: value.replace("_", " ") if name in CHOICES else value for name, value in arguments.items()}
    return sentence.format_map(dict.fromkeys(_fields(sentence), "unknown") | said)


def read_request(message: str) -> tuple[str, dict[str, str]] | None:
    """The tool and the arguments that a message asks for; None when it asks for nothing that the clerk knows."""
    for tool, sentences in REQUESTS.items():
        for sentence in reversed(sentences.split(" | ")):
            if found := re.search(_pattern(sentence), message, re.I | re.S):
                given = found.groupdict()
                return tool, {
                    name: value.replace(" ", "_") if name in CHOICES else value for name, value in given.items()
                }
    return None


def write_reply(tool: str, answer: Json) -> str:
    """What the desk returned, in sentences."""
    rows = answer if isinstance(answer, list) else [answer]
    return " ".join(_row(tool, row) for row in rows) or NOTHING[tool]


def read_reply(tool: str, text: str) -> Any:
    """What the desk returned, from the clerk's sentences.

    Raises:
        ValueError: they are none of this tool's.
    """
    if failed := re.fullmatch(_pattern(ERROR), text, re.S):
        return failed.groupdict()
    if text == NOTHING.get(tool):
        return []
    rows = [_typed(found.groupdict()) for found in re.finditer(_pattern(REPLIES[tool]), text)]
    if not rows:
        raise ValueError(f"no reply to {tool}: {text!r}")
    if tool == "list_orders":
        return [row | {"items": row["items"].split(", ")} for row in rows]
    if tool == "get_order":
        return _order(rows[0], text)
    return rows if tool in NOTHING else rows[0]


def _row(tool: str, row: Any) -> str:
    if "error" in row:
        return ERROR.format_map(row)
    if tool == "list_orders":
        row = row | {"items": ", ".join(row["items"])}
    said = [REPLIES[tool].format_map(row)]
    if tool == "get_order":
        said += [DELIVERED.format_map(row)] if "delivered" in row else []
        said += [ITEM.format_map(item) for item in row["items"]]
        said += [NOTED.format_map(note) for note in row["history"]]
    return " ".join(said)


def _order(row: dict[str, Any], text: str) -> dict[str, Any]:
    delivered = re.search(_pattern(DELIVERED), text)
    items = [_typed(found.groupdict()) for found in re.finditer(_pattern(ITEM), text)]
    history = [found.groupdict() for found in re.finditer(_pattern(NOTED), text)]
    return row | (delivered.groupdict() if delivered else {}) | {"items": items, "history": history}


def _typed(row: dict[str, str]) -> dict[str, Any]:
    return {name: int(value) if name in COUNTS else value for name, value in row.items()}


def _fields(sentence: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", sentence))


def _pattern(sentence: str) -> str:
    """A sentence as an expression: each brace takes as little as the rest allows, and the full stop ends a word."""
    escaped = re.escape(sentence)
    return re.sub(r"\\{(\w+)\\}", lambda field: f"(?P<{field[1]}>{SHAPES.get(field[1], '.+?')})", escaped) + r"(?=\s|$)"
