"""Candidates are graded as intended, read the messages alone, and one script serves by tools and by sentences."""

import json
import os
from collections import Counter
from itertools import pairwise

import pytest

from experiential_lab.evaluation.candidates import (
    CANDIDATES,
    GRADED,
    count_reached,
    next_message,
    play,
    play_text,
    text_opening,
    text_seed,
)
from experiential_lab.evaluation.clerk import ACCEPTED, NOT_UNDERSTOOD, REFUSED
from experiential_lab.evaluation.tasks import make_tasks
from experiential_lab.records import UsageError

TASKS = make_tasks(24, 7)
EPISODES = [play(task, who, trial=n) for task in TASKS for n, who in enumerate(CANDIDATES)]
TEXTS = [play_text(task, who, trial=n) for task in TASKS for n, who in enumerate(GRADED)]


def test_candidates_differ_in_what_they_reach_and_the_careful_one_reaches_every_goal():
    reached = Counter(
        who.name for task in make_tasks(78, 1) for n, who in enumerate(CANDIDATES) if play(task, who, trial=n).reached
    )
    assert reached["careful"] == 78
    assert 20 < reached["forgetful"] < reached["hasty"] - 6 < 66


def test_a_promise_is_no_cancellation():
    broken = [
        e
        for e in EPISODES
        if e.task.kind == "cancel"
        and not any(
            m.get("tool_calls") and m["tool_calls"][0]["function"]["name"] == "cancel_order" for m in e.messages
        )
    ]
    assert broken
    assert not any(episode.reached for episode in broken)


@pytest.mark.parametrize("text", [False, True])
def test_graded_candidates_stand_in_their_order(text):
    """A small sample of `xlab oracle candidates`; gaps of .08 need the 2,000 tasks of `make deep`."""
    reached = list(count_reached(260, 11, text=text).values())
    assert len(reached) == 8
    assert reached[0] == 260
    assert all(better > worse for better, worse in pairwise(reached))


@pytest.mark.skipif("EXPERIENTIAL_LAB_DEEP" not in os.environ, reason="a minute; make deep runs it")
@pytest.mark.parametrize("text", [False, True])
def test_the_gaps_of_graded_candidates_are_at_least_eight_hundredths_on_2000_tasks(text):
    reached = list(count_reached(2000, 11, text=text).values())
    assert all(better - worse >= 160 for better, worse in pairwise(reached))


def test_a_text_episode_ends_with_the_clerks_verdict_and_that_is_the_truth():
    assert {episode.reached for episode in TEXTS} == {True, False}
    for episode in TEXTS:
        *_, said, verdict = episode.messages
        assert said["content"].startswith("Submit: ")
        assert verdict["content"] == (ACCEPTED if episode.reached else REFUSED)
        assert [message["role"] for message in episode.messages[:2]] == ["system", "user"]
        assert NOT_UNDERSTOOD not in [message["content"] for message in episode.messages]
        assert next_message(GRADED[0], episode.messages, seed=0) is None or episode.candidate != "careful"


def test_the_next_message_depends_on_the_transcript_alone():
    for episode, (n, who) in zip(TEXTS, [each for _ in TASKS for each in enumerate(GRADED)], strict=True):
        for at in range(2, len(episode.messages), 2):
            said = next_message(who, episode.messages[:at], seed=text_seed(episode.task, n))
            assert said == episode.messages[at]["content"]


@pytest.mark.parametrize("reply", ["", "Nice weather.", "There is no such customer.", ACCEPTED, "{}", "W-1 " * 99])
def test_any_reply_lets_a_candidate_go_on_or_give_up(reply):
    for task in TASKS:
        messages = text_opening(task, trial=0)
        for _ in range(20):
            if (said := next_message(GRADED[0], messages, seed=1)) is None:
                break
            assert said
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": reply}]
        assert said is None or reply.startswith("There is no such")


def test_a_transcript_without_a_date_is_refused_with_the_remedy():
    with pytest.raises(UsageError, match=r"Today is YYYY-MM-DD.*text_opening"):
        next_message(GRADED[0], [{"role": "user", "content": "Please cancel W-1."}], seed=0)


def test_the_text_protocol_declares_and_calls_no_tools():
    assert not any(message.keys() - {"role", "content"} for episode in TEXTS for message in episode.messages)
    assert json.loads(json.dumps(TEXTS[0].messages)) == list(TEXTS[0].messages)
