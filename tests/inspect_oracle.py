"""What inspect_ai itself reads in its logs, as JSON: a second opinion, run in an environment of its own.

`python tests/inspect_oracle.py LOG ...` prints {log: its samples, or null where it is none of Inspect's}. A sample is
{id, epoch, usage, messages}; a message is {role, is_given, content: [[type of block, text]], calls: [[id, function,
arguments]], answers: id of the call, error}. `--make FOLDER` first writes two logs there that hold what the real files lack:
calls, also parallel ones, answered, refused by an error, and not at all. Nothing leaves the machine.
"""

import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from inspect_ai import Task
from inspect_ai import eval as run
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample, read_eval_log
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, ToolCall, ToolError, tool


@tool
def depth() -> Tool:
    async def execute(place: str) -> str:
        """How deep the water is.

        Args:
            place: where
        """
        if place == "quay":
            raise ToolError("no gauge there")
        return "" if place == "beach" else f"{len(place)} m; " + "mud " * 40

    return execute


def makes(text: str, **places: str) -> ModelOutput:
    calls = [ToolCall(id=call_id, function="depth", arguments={"place": place}) for call_id, place in places.items()]
    output = ModelOutput.from_content("mockllm/model", text)
    output.choices[0].message = ChatMessageAssistant(content=text, tool_calls=calls or None, source="generate")
    output.usage = ModelUsage(input_tokens=7, output_tokens=2, total_tokens=9)  # else it is counted, by a download
    return output


def made(folder: Path) -> list[str]:
    """Two logs of one run each, in both formats."""
    found = []
    for form in ("eval", "json"):
        outputs = [makes("I look.", k1="pier", k2="quay"), makes("", k1="beach"), makes("It is deep.")]
        (log,) = run(
            Task([Sample("How deep is it?", id="s")], solver=[use_tools(depth()), generate()]),
            model=get_model("mockllm/model", custom_outputs=outputs, memoize=False),
            log_dir=str(folder),
            log_format=form,  # type: ignore[arg-type]  # one of its two words
            display="none",
        )
        found.append(log.location.removeprefix("file://"))
    _deflate(Path(found[0]))
    return found


def _deflate(path: Path) -> None:
    """Packs a log as Inspect did until 2025: the zipfile of Python 3.11 to 3.13 cannot read Zstandard by itself."""
    with ZipFile(path) as pack:
        members = {name: pack.read(name) for name in pack.namelist()}
    with ZipFile(path, "w", ZIP_DEFLATED) as pack:
        for name, data in members.items():
            pack.writestr(name, data)


def samples(path: str) -> list[dict[str, Any]] | None:
    try:
        log = read_eval_log(path, resolve_attachments=True)
    except Exception as error:  # whatever it raises, it reads no log there
        print(f"{path}: {error}", file=sys.stderr)
        return None
    return [sample(each) for each in log.samples or []]


def sample(each: EvalSample) -> dict[str, Any]:
    usage = [used.model_dump(exclude_none=True) for used in each.model_usage.values()]
    return {"id": each.id, "epoch": each.epoch, "usage": usage, "messages": [message(one) for one in each.messages]}


def message(of: ChatMessage) -> dict[str, Any]:
    blocks = [("text", of.content)] if isinstance(of.content, str) else [block(each) for each in of.content]
    calls = (of.tool_calls or []) if of.role == "assistant" else []
    error = of.error if of.role == "tool" else None
    return {
        "role": of.role,
        "is_given": of.source == "input",
        "content": blocks,
        "calls": [(each.id, each.function, each.arguments) for each in calls],
        "answers": of.tool_call_id if of.role == "tool" else None,
        "error": error.message if error else None,
    }


def block(of: Any) -> tuple[str, str]:
    return of.type, getattr(of, of.type, "") if of.type in ("text", "reasoning") else ""


if __name__ == "__main__":
    paths = sys.argv[1:]
    if paths[:1] == ["--make"]:
        paths = made(Path(paths[1])) + paths[2:]
    json.dump({path: samples(path) for path in paths}, sys.stdout)
