"""Notebooks in a real browser: a typed message is answered, a moved boundary moves the page, foreign text stays text, and
nothing leaves the machine."""

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

EXPLORE = Path(__file__).parent.parent / "notebooks" / "explore"
NOTEBOOKS = {"session": "02_step_a_session.py", "microscope": "04_nearest_real_transitions.py"}
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
    """One marimo server with each notebook, and the same ones on a corpus whose every text is hostile."""
    if not CHROMIUM.exists():
        pytest.skip("needs Chromium: apt-get install -y chromium fonts-dejavu-core")
    folder = tmp_path_factory.mktemp("apps")
    hostile = hostile_corpus(folder / "hostile.jsonl")
    for name, file in NOTEBOOKS.items():
        code = (EXPLORE / file).read_text(encoding="utf-8")
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        code = code.replace('xl.data("desk_tools.jsonl")', repr(str(hostile)))
        (folder / f"hostile_{name}.py").write_text(code, encoding="utf-8")
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
    page.goto(f"{server}/?file=hostile_session.py")
    page.get_by_text("No step yet").wait_for(timeout=90_000)
    say(page, HOSTILE + "Which e-mail did you use?", 1)
    page.locator(".said.predicted").wait_for(timeout=30_000)
    for shown in (page.locator(".said").first, page.locator(".said.predicted"), page.locator("table.t tbody tr").first):
        assert "<script>document.title = 'owned'</script>" in shown.inner_text()
        assert "$x^2$" in shown.inner_text()
    assert page.title() != "owned"
    assert page.locator(".xl script, .xl img").count() == 0
    assert not [url for url in page.elsewhere if TYPESETTING not in url]


SLIDER = "Boundary: what is left of the handle is left out before scoring"
WALL = "[aria-label$='without a candidate.'] .point"


def open_microscope(page, url: str) -> None:
    page.goto(url)
    page.locator("table.near").wait_for(timeout=90_000)
    page.locator(WALL).nth(100).wait_for(timeout=30_000)


def title_with(page, text: str) -> str:
    page.locator(".h1", has_text=text).wait_for(timeout=30_000)
    return page.locator(".h1").inner_text()


def place_of(page) -> str:
    """`step 7 of 103`."""
    return page.locator("[aria-label='One step'] .k").first.inner_text().partition(" · ")[0]


def test_the_boundary_moves_by_keyboard_and_title_sentence_and_hits_move_with_it(server, page):
    open_microscope(page, f"{server}/?file=microscope.py")
    slider = page.get_by_label(SLIDER)
    slider.focus()
    page.keyboard.press("Home")
    stops = [
        "only the step itself",
        "its own trace",
        "its whole conversation",
        "its family",
        "its family and identical calls",
    ]
    seen = []
    for n, left_out in enumerate(stops):
        title = title_with(page, f"{left_out} left out" if n == 0 else f"out {left_out},")
        assert slider.get_attribute("aria-valuetext") == f"left out: {left_out}"
        page.locator(".say", has_text=f"For this step {(1, 3, 8, 8, 8)[n]} of 357").wait_for(timeout=30_000)
        if n > 1:  # the other trials are left out, and they stand above hit 1
            page.locator("table.near tbody tr.out").first.wait_for(timeout=30_000)
        seen.append((title, page.locator(".bd .seg.out").count()))
        page.keyboard.press("ArrowRight")
    assert len({title for title, _ in seen}) == 5
    assert [count for _, count in seen] == [1, 2, 3, 4, 5]
    assert not [url for url in page.elsewhere if TYPESETTING not in url]


def test_a_clicked_square_is_the_step_that_is_shown_and_the_boundary_keeps_its_value(server, page):
    open_microscope(page, f"{server}/?file=microscope.py")
    page.get_by_label(SLIDER).focus()
    page.keyboard.press("End")
    title_with(page, "out its family and identical calls,")
    before = place_of(page)
    page.locator(WALL).nth(57).scroll_into_view_if_needed()
    box = page.locator(WALL).nth(57).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function(
        "was => !document.querySelector(\"[aria-label='One step'] .k\").innerText.startsWith(was + ' ')",
        arg=before,
        timeout=30_000,
    )
    chosen = place_of(page)
    page.get_by_role("button", name="step →").click()
    page.locator("[aria-label='One step'] .k", has_text=f"step {int(chosen.split()[1]) % 103 + 1} of 103").wait_for()
    assert page.get_by_label(SLIDER).input_value() == "4"
    title_with(page, "out its family and identical calls,")


def test_markup_in_a_trace_shows_as_text_under_the_microscope(server, page):
    open_microscope(page, f"{server}/?file=hostile_microscope.py")
    card = page.locator(".act")
    assert "<script>document.title = 'owned'</script>" in card.inner_text()
    assert "$x^2$" in card.inner_text()
    for _ in range(3):
        page.get_by_role("button", name="a step it changes").click()
        page.wait_for_timeout(500)
    assert page.title() != "owned"
    assert page.locator(".xl script, .xl img").count() == 0


@pytest.mark.parametrize("width", [620, 1110, 1440])
def test_the_microscope_fits_its_window_and_nothing_overlaps(server, page, width):
    page.set_viewport_size({"width": width, "height": 1000})
    open_microscope(page, f"{server}/?file=microscope.py")
    scrolls = """[document.documentElement, ...document.querySelectorAll("*")].filter(e =>
        ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1).length"""
    assert page.evaluate(scrolls) == 0
    assert page.evaluate("document.documentElement.scrollWidth") == width
    sections = [each.bounding_box() for each in page.locator(".mic section").all()]
    assert len(sections) == 4
    for n, one in enumerate(sections):
        for other in sections[n + 1 :]:
            apart = one["x"] + one["width"] <= other["x"] + 1 or one["y"] + one["height"] <= other["y"] + 1
            assert apart, (one, other)
