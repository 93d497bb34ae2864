"""The session notebook in a real browser: a typed message is answered, foreign text stays text, nothing leaves the machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from experiential_lab.lab import bundled

pytestmark = pytest.mark.browser

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "explore" / "02_step_a_session.py"
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\"> $x^2$ "
TYPESETTING = "mathjax"  # marimo asks a public server for it; nothing of ours needs it
BOX = "what the candidate says next (Ctrl+Enter sends)"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One marimo server with the session notebook, and the same notebook on a corpus whose every text is hostile."""
    if not CHROMIUM.exists():
        pytest.skip("needs Chromium: apt-get install -y chromium fonts-dejavu-core")
    folder = tmp_path_factory.mktemp("apps")
    code = NOTEBOOK.read_text(encoding="utf-8")
    hostile = hostile_corpus(folder / "hostile.jsonl")
    (folder / "session.py").write_text(code, encoding="utf-8")
    (folder / "hostile.py").write_text(
        code.replace('xl.data("desk_tools.jsonl")', repr(str(hostile))), encoding="utf-8"
    )
    port = free_port()
    command = [sys.executable, "-m", "marimo", "run", str(folder), "--headless", "--host", "127.0.0.1", "-p", str(port)]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen([*command, "--no-token"], stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def hostile_corpus(path: Path) -> Path:
    lines = [json.loads(line) for line in bundled("desk_tools.jsonl").read_text(encoding="utf-8").splitlines()]
    for message in (message for line in lines for message in line["messages"] if message.get("content")):
        message["content"] = HOSTILE + message["content"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url: str, process: subprocess.Popen) -> None:
    for _ in range(180):
        assert process.poll() is None, "the server ended before it listened"
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"{url} did not answer")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """A page that asks nobody but this machine, and a list of what it wanted from elsewhere."""
    page = browser.new_page(viewport={"width": 1110, "height": 1400})
    page.elsewhere = []

    def route(route):
        if route.request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            return route.continue_()
        page.elsewhere.append(route.request.url)
        return route.abort()

    page.route("**/*", route)
    yield page
    page.close()


def say(page, text: str, said: int) -> None:
    page.get_by_placeholder(BOX).fill(text)
    page.get_by_role("button", name="step", exact=True).click()
    page.get_by_text(f"step {said} · you, the candidate").wait_for(timeout=30_000)


def test_a_typed_message_is_answered_with_its_support_and_its_receipt(server, browser, page):
    page.goto(f"{server}/?file=session.py")
    page.get_by_text("No step yet").wait_for(timeout=90_000)
    say(page, "Which e-mail did you use?", 1)
    page.get_by_text("Step 1: answered from 5 precedents, support B").wait_for(timeout=30_000)
    answer = page.locator(".said.predicted")
    assert "@example." in answer.inner_text()
    assert "similar words" in answer.inner_text()
    assert len(answer.locator(".m[title^='sha256:']").inner_text()) == 8
    page.locator(".checks li").nth(3).wait_for(timeout=30_000)
    assert [line.split()[0] for line in page.locator(".checks li").all_inner_texts()] == [
        "✓shape",
        "✓digest",
        "✓join",
        "✓snapshot",
    ]
    say(page, "Which e-mail did you use?", 2)
    assert page.locator(".said.predicted").count() == 2
    assert not [url for url in page.elsewhere if TYPESETTING not in url]


def test_a_reload_sends_nothing_again(server, page):
    page.goto(f"{server}/?file=session.py")
    page.get_by_text("No step yet").wait_for(timeout=90_000)
    say(page, "Which e-mail did you use?", 1)
    page.reload()
    page.get_by_text("0 messages answered").or_(page.get_by_text("1 message answered")).wait_for(timeout=90_000)
    assert page.locator(".said.predicted").count() <= 1
    assert not [url for url in page.elsewhere if TYPESETTING not in url]


def test_markup_in_a_typed_message_and_in_a_trace_shows_as_text(server, page):
    page.goto(f"{server}/?file=hostile.py")
    page.get_by_text("No step yet").wait_for(timeout=90_000)
    say(page, HOSTILE + "Which e-mail did you use?", 1)
    page.locator(".said.predicted").wait_for(timeout=30_000)
    for shown in (page.locator(".said").first, page.locator(".said.predicted"), page.locator("table.t tbody tr").first):
        assert "<script>document.title = 'owned'</script>" in shown.inner_text()
        assert "$x^2$" in shown.inner_text()
    assert page.title() != "owned"
    assert page.locator(".xl script, .xl img").count() == 0
    assert not [url for url in page.elsewhere if TYPESETTING not in url]
