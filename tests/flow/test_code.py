"""What a project's Python gives to its flows."""

from __future__ import annotations

from pathlib import Path

from turnline.flow.code import SAME_NAME, TWO_TOOLS, Code, code_of, unclear_tools
from turnline.flow.document import read_file
from turnline.flow.folder import Folder
from turnline.flow.modules import Modules

NODE = "from turnline.flow.node import node\n\n@node('save')\ndef save(ctx): return ctx\n"
AGENT = "from turnline import Agent\n\nada = Agent('ada')\n"
TOOL = "from turnline import tool\n\n@tool\ndef search(query: str) -> str:\n    return query\n"


def code(root: Path, **files: str) -> Code:
    (root / "nodes").mkdir()
    for name, text in files.items():
        (root / "nodes" / f"{name}.py").write_text(text)
    folder = Folder(root, shown_as=Path("here"))
    modules, findings = Modules(folder).load(folder.code())
    assert findings == []
    return code_of(modules, folder)


def test_nodes_agents_and_tools_are_known_by_name(tmp_path: Path) -> None:
    found = code(tmp_path, a=NODE, b=AGENT, c=TOOL)

    assert (list(found.nodes), list(found.agents), list(found.tools)) == (["save"], ["ada"], ["search"])
    assert found.agents["ada"].name == "ada"
    assert found.tools["search"]("x") == "x"
    assert found.findings == []


def test_what_another_file_imports_is_still_one(tmp_path: Path) -> None:
    found = code(tmp_path, a=NODE + AGENT + TOOL, b="from nodes.a import save, ada, search")

    assert (found.findings, found.two_tools) == ([], {})


def test_two_nodes_of_one_name_are_told_at_the_second(tmp_path: Path) -> None:
    (finding,) = code(tmp_path, a=NODE, b="\n" + NODE).findings

    assert (finding.code, finding.file, finding.line) == (SAME_NAME, "here/nodes/b.py", 4)
    assert "here/nodes/a.py:3" in finding.message


def test_two_agents_of_one_name_are_told_at_the_second(tmp_path: Path) -> None:
    (finding,) = code(tmp_path, a=AGENT, b="\n" + AGENT.replace("ada =", "other: Agent =")).findings

    assert (finding.code, finding.file, finding.line) == (SAME_NAME, "here/nodes/b.py", 4)
    assert "here/nodes/a.py:3" in finding.message


def test_two_tools_of_one_name_are_told_only_of_a_flow_that_names_them(tmp_path: Path) -> None:
    found = code(tmp_path, a=TOOL, b=TOOL)
    naming, other = (
        read_file(f"- {{id: a, agent: {{tools: [{tool}]}}}}", file="f.yaml", environment={}).flows[0]
        for tool in ("search", "find")
    )
    (finding,) = unclear_tools(naming, found)

    assert found.findings == []
    assert (finding.code, finding.line, finding.column) == (TWO_TOOLS, 1, 27)
    assert "here/nodes/a.py:3 and here/nodes/b.py:3" in finding.message
    assert list(unclear_tools(other, found)) == []
