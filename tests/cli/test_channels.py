"""`turnline channels`: look at conversations, follow them, fork them, take a person's turn."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.stage import stage
from tests.flow.stage import stage as flow_stage
from tests.hub.scenes import A_B, die, house
from tests.turn_lines import claim_own
from turnline import run_sync
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.scripted import call as calls
from turnline.cli.lines import Teller
from turnline.client.channel import Channel
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.core.channel import ChannelSpec
from turnline.core.claims import MAX_CLAIMS
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.governance import Passport
from turnline.core.graph import sequence
from turnline.core.transitions import StayTarget, targets
from turnline.errors import (
    BadQuery,
    BadSpec,
    ChannelClosed,
    ClaimLost,
    LogUnavailable,
    PastErased,
    UnknownChannel,
    UnknownName,
    UnknownParticipant,
    UnknownQuestion,
)
from turnline.hub.timers import secret_id
from turnline.hub.worker import this_host
from turnline.log.sqlite import SqliteLog
from turnline.testing import ScriptedModel
from turnline.testing.blob_contract import file_data
from turnline.testing.lines import line

from .projects import call, project, turnline

TALK = sequence(["user", "ada", "user"])
DEAD = f"{this_host()}:999999999:1/agent"


def held(file: Path, *, said: int = 2, name: str = "c1") -> Path:
    """A log with a conversation on it: the user asks, ada looks and answers; the last word is the user's."""

    async def hold() -> None:
        ada = Agent("ada", config=ScriptedModel(calls("look", where="here"), "a \x1b[31mlamp"))

        @ada.tool
        def look(where: str) -> str:
            return "it shines"

        async with stage(ada, log=SqliteLog(file, durability="process")) as home:
            channel = await home.open(
                TALK, by="user", message="what is it?", channel_id=name, knobs={"context_vars": {"n": 1}}
            )
            await home.people["user"].wait_for_channel_event(name, lambda one: one.event_type == "packet")
            if said > 2:
                await channel.send("thanks")

    asyncio.run(hold())
    return file


def delegated(file: Path) -> Path:
    """A log with a run on it, written at the real time: ada asks bob and answers."""
    ada = Agent("ada", config=ScriptedModel(calls("delegate", to="bob", task="please"), "done"))
    bob = Agent("bob", config=ScriptedModel("done"))
    run_sync(
        sequence(["user", "ada"]),
        agents=[ada, bob],
        message="go",
        attach_plugin=True,
        log=SqliteLog(file, durability="process"),
        channel_id="c1",
    )
    return file


def channels(verb: str, *arguments: object, log: Path) -> str:
    """What a verb that succeeds prints."""
    done = call("channels", verb, *map(str, arguments), "--log", f"sqlite:///{log}")
    assert done.code == 0, done
    return done.out


def of(verb: str, *arguments: object, log: Path) -> Any:
    told = json.loads(channels(verb, *arguments, "--json", log=log))
    return told["channels"] if verb == "list" else told


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return held(tmp_path / "log.db")


def test_list_shows_who_has_the_floor_where(log: Path) -> None:
    (one,) = of("list", log=log)
    shown = channels("list", log=log)

    assert (one["channel_id"], one["status"], one["turns"], one["floor"]) == ("c1", "active", 2, "user")
    assert one["participants"] == ["user", "ada"]
    assert shown.splitlines()[0].split()[:3] == ["id", "type", "status"]
    assert one["created_at"][:16].replace("T", " ") in shown
    assert shown.splitlines()[1].startswith("c1  workflow  active")
    assert of("list", "--status", "closed", log=log) == []
    assert of("list", "--participant", "nobody", log=log) == []


def test_show_tells_the_context_and_the_lines_without_what_a_terminal_would_obey(log: Path) -> None:
    shown = channels("show", "c1", log=log)

    assert "  n = 1" in shown
    assert "user: what is it?  -> ada (transition 0)" in shown
    assert 'ada calls look({"where":"here"})' in shown
    assert "ada look answered: it shines" in shown
    assert "\x1b" not in shown
    assert "turn.claimed" not in shown
    assert "turn.claimed" in channels("show", "c1", "--all", log=log)


def test_show_at_a_line_tells_how_it_was_then(log: Path) -> None:
    seqs = {one["type"]: one["seq"] for one in of("show", "c1", log=log)["lines"]}
    then = of("show", "c1", "--at", seqs["text"], log=log)

    assert (then["floor"], then["turns"], then["seq"]) == ("ada", 1, seqs["text"])
    assert then["lines"][-1]["data"] == {"text": "what is it?"}
    with pytest.raises(UnknownName, match="1 to "):
        channels("show", "c1", "--at", "99", log=log)


def test_y2_show_and_why_say_what_was_erased(tmp_path: Path) -> None:
    async def erase() -> int:
        async with house(SqliteLog(tmp_path / "log.db"), "alice", "bob") as home:
            channel = await home.open(A_B, message="hello", channel_id="c1")
            await home.handle("bob", channel).send("bye")
            await home.hub.erase("c1", by="admin")
            return next(line.seq for line in await home.wal(channel) if line.event_type == "text")

    seq = asyncio.run(erase())
    log = str(tmp_path / "log.db")

    shown = call("channels", "show", "c1", "--log", log)
    lines = json.loads(call("channels", "show", "c1", "--log", log, "--json").out)["lines"]
    why = call("channels", "why", "c1", str(seq), "--log", log)

    assert (shown.code, why.code) == (0, 0)
    assert "hello" not in shown.out
    assert "alice" not in shown.out.replace("alice-", "")
    assert shown.out.count(": erased") == 2
    assert "erased the lines" in shown.out
    assert [line["seq"] for line in lines if line.get("erased")][1] == seq
    assert "was erased" in why.out
    with pytest.raises(PastErased):
        call("channels", "export", "c1", "--log", log)


def test_why_says_the_rule_of_a_line_or_of_the_last_turn(log: Path) -> None:
    told = of("why", "c1", log=log)
    (decided,) = [rule for rule in told["rules"] if rule.get("decided")]

    assert (told["turn"], decided["index"]) == (2, 1)
    assert (
        channels("why", "c1", told["seq"], log=log)
        .splitlines()[0]
        .startswith(f"c1 {told['seq']}: after turn 2")
    )


def test_a_fork_prints_its_id_alone_and_diff_says_where_they_part(log: Path) -> None:
    asked = next(one["seq"] for one in of("show", "c1", log=log)["lines"] if one["type"] == "text")
    done = call("channels", "fork", "c1", "--at", str(asked), "--log", f"sqlite:///{log}")
    fork = done.out.strip()
    parted = of("diff", "c1", fork, log=log)

    assert fork.endswith("-fork")
    assert "ada has the floor" in done.err
    assert of("show", fork, log=log)["forked_from"] == {"channel": "c1", "seq": asked}
    assert not parted["is_same"]
    assert (parted["first_a"]["event_type"], parted["first_b"]) == ("turn.model", None)
    assert "They part at:" in channels("diff", "c1", fork, log=log)
    assert of("diff", "c1", "c1", log=log)["is_same"]


def test_an_exported_channel_is_played_by_turnline_test_and_a_changed_one_fails(
    log: Path, tmp_path: Path
) -> None:
    folder = project(tmp_path / "it", tests__empty_yaml="")
    file = folder / "tests" / "talk.channel.json"
    channels("export", "c1", "-o", file, log=log)

    assert call("test", str(folder)).out.splitlines()[-1] == "1 passed."
    data = json.loads(file.read_text())
    data["channel"][0]["event_data"]["knobs"]["graph"]["transitions"][0]["then"] = targets.to_dict(
        StayTarget()
    )
    file.write_text(json.dumps(data))
    failed = call("test", str(folder))
    assert failed.code == 1
    assert "expected: text by user: {'text': 'what is it?'} (the floor goes to ada)" in failed.out


def test_answer_takes_the_turn_that_waits_for_a_person(log: Path) -> None:
    assert "user: thank you  -> close" in channels("answer", "c1", "thank you", log=log)

    assert of("show", "c1", log=log)["reason"] == "sequence_complete"
    with pytest.raises(ChannelClosed):
        channels("answer", "c1", "more", log=log)


def test_answer_refuses_whoever_is_not_waited_for(log: Path) -> None:
    asked = next(one["seq"] for one in of("show", "c1", log=log)["lines"] if one["type"] == "text")
    fork = channels("fork", "c1", "--at", asked, log=log).strip()

    with pytest.raises(BadSpec, match="'ada' has the floor and a person has no open question"):
        channels("answer", fork, "me first", log=log)
    with pytest.raises(BadSpec, match="'ada' has the floor and user has no open question"):
        channels("answer", fork, "me first", "--as", "user", log=log)
    with pytest.raises(UnknownParticipant):
        channels("answer", "c1", "hello", "--as", "ada", log=log)


def test_n3_a_stuck_channel_is_listed_and_a_retry_continues_the_same_one(log: Path) -> None:
    async def stick() -> None:
        async with house(SqliteLog(log, durability="process"), "alice", "bob") as home:
            await home.open(A_B, channel_id="c2")
            alice = home["alice"].agent_id
        await die(SqliteLog(log, durability="process"), "c2", alice, is_found=True)

    asyncio.run(stick())
    listed = of("list", "--status", "stuck", log=log)
    again = of("retry", "c2", log=log)

    assert [(one["channel_id"], one["status"], one["waiting_for"]) for one in listed] == [
        ("c2", "active", "stuck")
    ]
    assert again["channel_id"] == "c2"
    assert of("list", "--status", "stuck", log=log) == []
    assert "c2" in [one["channel_id"] for one in of("list", "--status", "active", log=log)]


def test_show_counts_what_the_channels_below_used(tmp_path: Path) -> None:
    file = delegated(tmp_path / "log.db")
    usage = of("show", "c1", log=file)["usage"]

    assert (usage["requests"], usage["below"]["requests"], usage["below"]["channels"]) == (3, 1, 1)
    assert "1 channel below included" in channels("show", "c1", log=file)


def test_h1_answer_answers_what_an_agent_has_asked(tmp_path: Path) -> None:
    file = tmp_path / "log.db"

    async def asked() -> None:
        ada = Agent("ada", config=ScriptedModel(calls("sure"), "then so"))

        @ada.tool
        async def sure(context: Context) -> str:
            return await context.input("Are you sure?")

        async with stage(ada, log=SqliteLog(file, durability="process")) as home:
            await home.open(sequence(["user", "ada"]), by="user", message="go", channel_id="c1")
            await home.people["user"].wait_for_channel_event(
                "c1", lambda one: one.event_type == "human.requested"
            )

    asyncio.run(asked())
    line = of("answer", "c1", "quite", log=file)

    assert line["type"] == "human.answered"
    assert line["data"]["answer"] == "quite"
    assert line["data"]["by"] == "operator"
    assert line["audience"] == ["ada", "user"]
    assert 'user answers, by operator: "quite"' in channels("show", "c1", log=file)


def test_answer_answers_only_for_a_person_whom_the_question_addresses(tmp_path: Path) -> None:
    file = tmp_path / "log.db"

    async def asked() -> None:
        hub = await Hub.open(SqliteLog(file, durability="process"))
        door = HubClient(LocalLink(hub), hub=hub)
        ada = await door.register(None, Passport(name="ada"))
        for name in ("user", "boss"):
            await door.register_human(Passport(name=name, kind="human"))
        await ada.open("workflow", ["user", "boss"], {"graph": sequence(["ada"]).to_dict()}, channel_id="c1")
        claim = await claim_own(ada.seat, "c1", 1)
        data = {"request_id": secret_id(), "question": "Pay?", "turn": 1, "call": "", "position": 1}
        handle = Channel(ada.seat, "c1", claim=claim.seq)
        await handle.send(event_type="human.requested", event_data=data, audience=["boss"])
        await door.close()
        await hub.close()

    asyncio.run(asked())
    with pytest.raises(BadSpec, match="user has no open question"):
        channels("answer", "c1", "yes", "--as", "user", log=file)
    line = of("answer", "c1", "yes", "--as", "boss", log=file)

    assert line["data"]["by"] == "operator"
    assert line["data"]["for"].startswith("person-")


def test_answer_does_not_guess_which_of_several_questions_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "log.db"

    async def asked() -> None:
        ada = Agent("ada", config=ScriptedModel([calls("pay", to="bob"), calls("pay", to="eve")], "done"))

        @ada.tool(approval=True)
        async def pay(to: str) -> str:
            return f"paid {to}"

        async with stage(ada, log=SqliteLog(file, durability="process")) as home:
            channel = await home.open(sequence(["user", "ada"]), by="user", message="go", channel_id="c1")
            first = await channel.wait_for(lambda one: one.event_type == "human.requested")
            await channel.wait_for(lambda one: one.event_type == "human.requested", since=first.seq)

    asyncio.run(asked())
    told = [one["data"] for one in of("show", "c1", log=file)["lines"] if one["type"] == "human.requested"]
    with pytest.raises(
        BadSpec, match=r"2 open ones .*Allow pay with {'to': 'eve'}.*--question ID. Nothing was answered"
    ):
        channels("answer", "c1", "yes", log=file)
    line = of("answer", "c1", "yes", "--question", told[1]["request_id"], log=file)
    with pytest.raises(UnknownQuestion):
        channels("answer", "c1", "yes", "--question", told[1]["request_id"], log=file)

    assert line["data"]["request_id"] == told[1]["request_id"]
    assert of("answer", "c1", "no", log=file)["data"]["request_id"] == told[0]["request_id"]


def test_tail_follows_until_the_channel_closes_and_a_pipe_gets_plain_lines(log: Path) -> None:
    command = [sys.executable, "-m", "turnline", "channels", "tail", "c1", "--log", f"sqlite:///{log}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        first = tail.stdout.readline()
        channels("answer", "c1", "thank you", log=log)
        rest = tail.stdout.read()
        assert tail.wait(timeout=30) == 0

    assert "opened the channel" in first
    assert rest.splitlines()[-1].endswith("closed the channel: sequence_complete")
    assert "\x1b" not in first + rest


def test_tail_in_json_is_a_line_of_json_each(tmp_path: Path) -> None:
    log = held(tmp_path / "log.db", said=3)
    told = [json.loads(line) for line in channels("tail", "c1", "--json", log=log).splitlines()]

    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))
    assert told[-1]["type"] == "channel.closed"


def test_a_terminal_gets_colour(tmp_path: Path) -> None:
    log = held(tmp_path / "log.db", said=3)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "turnline", "channels", "tail", "c1", "--log", f"sqlite:///{log}"]
    environ = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": ""}
    subprocess.run(command, stdout=theirs, check=True, timeout=60, env=environ)
    os.close(theirs)
    shown = b""
    with open(ours, "rb", buffering=0) as screen:
        try:
            while part := screen.read(65536):
                shown += part
        except OSError:  # Nobody writes to it any more.
            pass

    assert b"\x1b[1;35mada" in shown


def test_the_log_is_the_projects_own_unless_something_else_is_said(tmp_path: Path) -> None:
    folder = project(tmp_path / "it")
    (folder / ".turnline").mkdir()
    held(folder / ".turnline" / "log.db", name="own")
    held(folder / "other.db", name="other")

    assert [
        one["channel_id"]
        for one in json.loads(call("channels", "list", "--dir", str(folder), "--json").out)["channels"]
    ] == ["own"]
    (folder / "turnline.yaml").write_text(f"log: sqlite:///{folder / 'other.db'}")
    assert [
        one["channel_id"]
        for one in json.loads(call("channels", "list", "--dir", str(folder), "--json").out)["channels"]
    ] == ["other"]


def test_looking_makes_no_file_and_an_error_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="--log"):
        call("channels", "list", "--dir", str(tmp_path))
    done = turnline("channels", "show", "c1", cwd=tmp_path)

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("turnline: ")
    assert len(done.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_channel_that_is_not_there_is_named(log: Path) -> None:
    with pytest.raises(UnknownChannel, match="'nowhere'"):
        channels("show", "nowhere", log=log)


def test_what_is_not_there_is_told_with_the_verb_that_lists_what_is(tmp_path: Path) -> None:
    file = delegated(tmp_path / "log.db")
    done = turnline("channels", "show", "nowhere", "--log", str(file), cwd=tmp_path)
    assert done.err == "turnline: no channel 'nowhere' is on this log; `turnline channels list` lists them.\n"

    done = turnline("runs", "show", "c1", "--log", str(file), cwd=tmp_path)
    assert done.err.startswith("turnline: there is no run 'c1'. `turnline runs list` lists them;")
    assert done.err.count("\n") == 1


def test_retry_takes_the_turn_that_failed_once_more(tmp_path: Path) -> None:
    file = tmp_path / "log.db"

    async def go_on(name: str) -> str:
        async with stage(Agent("ada", config=ScriptedModel("fine now")), log=SqliteLog(file)) as home:
            return (await home.people["user"].channel(name).result()).text

    async def fail() -> None:
        broken = Agent("ada", config=ScriptedModel(), attempts=1)
        async with stage(broken, log=SqliteLog(file)) as home:
            graph = sequence(["user", "ada"])
            channel = await home.open(graph, by="user", message="how is it?", channel_id="c1")
            assert (await channel.result()).reason == "turn_failed"

    asyncio.run(fail())
    again = of("retry", "c1", log=file)
    assert (again["floor"], again["turns"], again["forked_from"]["channel"]) == ("ada", 1, "c1")
    assert asyncio.run(go_on(again["channel_id"])) == "fine now"


def test_list_and_show_name_a_channel_that_is_stuck_or_rests(tmp_path: Path) -> None:
    file = tmp_path / "log.db"

    async def hold() -> None:
        async with stage(Agent("ada", config=ScriptedModel("")), log=SqliteLog(file)) as home:
            channel = await home.people["user"].open("conversation", "ada", message="hi", channel_id="c1")
            await channel.result()
        hub = await Hub.open(SqliteLog(file), ttl_sweep_interval=0)
        client = HubClient(LocalLink(hub))
        bob = await client.register(passport=Passport(name="bob"))
        user = await client.register_human(Passport(name="user", kind="human"))
        knobs = {"graph": sequence(["bob"]).to_dict()}
        await user.open("workflow", ["bob"], knobs, message="hi", channel_id="c2")
        for place in range(MAX_CLAIMS):
            await hub.turns.claim("c2", bob.agent_id, worker=DEAD, turn=1, alone=place >= SUSPECT_CLAIMS)
        with pytest.raises(ClaimLost):
            await hub.turns.claim("c2", bob.agent_id, worker=DEAD, turn=1)
        await client.close()
        await hub.close()

    asyncio.run(hold())
    listed = [line.split() for line in channels("list", log=file).splitlines()[1:]]

    assert {line[0]: " ".join(line[2:4]) for line in listed} == {
        "c1": "active (resting)",
        "c2": "active (stuck)",
    }
    assert channels("show", "c1", log=file).startswith("c1 conversation, active: resting,")
    assert channels("show", "c2", log=file).startswith("c2 workflow, active: stuck,")


def test_channels_are_closed_one_by_one_and_the_exit_code_says_if_one_was_not(log: Path) -> None:
    address = f"sqlite:///{log}"
    done = call("channels", "close", "c1", "nowhere", "--reason", "stale", "--log", address, "--json")
    again = call("channels", "close", "c1", "--log", address)

    assert (done.code, again.code) == (1, 1)
    results = {one["id"]: one.get("result") or one["error"]["type"] for one in json.loads(done.out)}
    assert results == {"c1": "closed", "nowhere": "UnknownChannel"}
    (one,) = of("list", "--status", "closed", log=log)
    assert (one["channel_id"], one["reason"]) == ("c1", "stale")
    (last,) = of("show", "c1", "--lines", "1", log=log)["lines"]
    assert last["data"]["by"] == "operator"


def test_list_takes_filters_and_pages(log: Path) -> None:
    async def open_more() -> None:
        async with house(SqliteLog(log, durability="process"), "alice", "bob") as home:
            for n in range(3):
                await home.open(A_B, channel_id=f"d{n}", labels={"n": str(n)})

    asyncio.run(open_more())
    first = json.loads(channels("list", "--participant", "alice", "--limit", "2", "--json", log=log))
    after = ("--participant", "alice", "--after", first["next"])

    assert [one["channel_id"] for one in first["channels"]] == ["d2", "d1"]
    assert [one["channel_id"] for one in of("list", *after, log=log)] == ["d0"]
    assert [one["channel_id"] for one in of("list", "--label", "n=1", log=log)] == ["d1"]
    with pytest.raises(BadQuery, match="after is 'd1'"):
        channels("list", "--after", "d1", log=log)


def test_a_run_is_not_closed_as_a_channel(tmp_path: Path) -> None:
    file = tmp_path / "log.db"

    async def hold() -> None:
        async with flow_stage("steps: [{id: a, wait: {for: 1h}}]", log=SqliteLog(file)) as flows:
            await flows.runs.start("main", {}, run_id="r1")
            await flows.paused("r1")

    asyncio.run(hold())
    done = call("channels", "close", "r1", "--log", f"sqlite:///{file}")

    assert done.code == 1
    assert "use `turnline runs cancel`" in done.err


def test_retry_without_a_turn_that_failed_says_what_to_do(log: Path) -> None:
    with pytest.raises(BadSpec, match="`fork --at SEQ` goes on from any line"):
        channels("retry", "c1", log=log)
    assert [one["channel_id"] for one in of("list", log=log)] == ["c1"]


def test_looking_changes_nothing_on_the_log(log: Path) -> None:
    before = of("show", "c1", log=log)
    for verb in ("list", "show", "why", "export"):
        channels(verb, *([] if verb == "list" else ["c1"]), log=log)

    assert of("show", "c1", log=log) == before


@pytest.mark.parametrize(
    "verb", ["list", "show", "tail", "why", "fork", "retry", "close", "diff", "export", "answer"]
)
def test_every_verb_has_an_example(verb: str) -> None:
    assert "Example: turnline channels " in call("channels", verb, "--help").out


def test_a_line_names_its_files() -> None:
    sent = line("c1", 1, data=file_data(b"one", b"three"))

    shown = str(Teller(ChannelSpec(channel_id="c1", type="conversation")).tell(sent))

    assert shown.endswith("[a.txt, 3 bytes] [a.txt, 5 bytes]")
