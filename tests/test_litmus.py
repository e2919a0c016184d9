"""Litmus tests: the corpus with its verdicts, the command, errors that name lines, and limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import InputError, LitmusSyntaxError, SimulationError, UnsupportedOperationError
from tiebreak.sim.litmus.candidates import Limits
from tiebreak.sim.litmus.evaluation import decide, outcomes
from tiebreak.sim.litmus.program import Address, Alias, Barrier, Branch, Fence, Label, Load, Move, Placement, Update
from tiebreak.sim.litmus.reader import parse
from tiebreak.sim.litmus.writer import write

CORPUS = Path(__file__).parent / "litmus"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())

HEAD = "PTX test\n{ x=0; }\n P0@cta 0,gpu 0 | P1@cta 1,gpu 0 ;\n"


def run(code: str, condition: str = "forall (0 == 0)") -> str:
    """The verdict on two threads' code."""
    return decide(parse(HEAD + code + "\n" + condition)).verdict


@pytest.mark.parametrize("file", sorted(EXPECTED))
@pytest.mark.parametrize("model", ["ptx", "sc", "rc11"])
def test_every_verdict_of_the_corpus(file: str, model: str):
    result = decide(parse((CORPUS / file).read_text(), file), model)
    assert result.verdict in {"PROVED", "FAILED"}
    assert result.holds is (result.verdict == "PROVED")
    if model in EXPECTED[file]:
        assert result.holds is EXPECTED[file][model]


def test_the_corpus_is_what_its_table_lists():
    assert {path.name for path in CORPUS.glob("*.litmus")} == set(EXPECTED)
    verdicts = [entry["ptx"] for entry in EXPECTED.values()]
    assert verdicts.count(False) >= 15
    assert sum("sc" in entry and entry["sc"] != entry["ptx"] for entry in EXPECTED.values()) >= 40


@pytest.mark.parametrize("file", sorted(EXPECTED))
def test_what_is_written_is_read_as_the_same_program(file: str):
    program = parse((CORPUS / file).read_text(), file)
    assert parse(write(program)) == program


def test_a_witness_decides_the_condition():
    result = decide(parse(HEAD + "st.weak x, 1 | ld.weak r0, x ;\nexists (P1:r0 == 1 /\\ x == 1)"))
    assert dict(result.witness or ()) == {"P1:r0": 1, "x": 1}
    assert decide(parse(HEAD + "st.weak x, 1 | ld.weak r0, x ;\nforall (P1:r0 == 0)")).witness is not None


def test_the_parts_of_instructions():
    text = """PTX parts "described"
    (* a comment { with braces *)
    { x=0; y @ generic aliases x; P0:r9=&x; P1:r1=-0x10; }
     P0@cta 0, cluster 2, gpu 3        | P1@cta 1,gpu 0              ;
     LC07: ld.sys.acquire r0, r9       | membar.gl                   ;
     atom.add r1, [x], r0              | fence.sc.cluster            ;
     red.relaxed.cta.min x, 4          | ld.volatile r2, x           ;
     bge r0, 3, LC07                   | bar.cta.sync 1, r1, 2       ;
     mov r4, x                         | atom.sys.cas.release r5, y, 0, r2 ;
     fence.proxy.alias                 | barrier.arrive 7            ;
    locations [x; P0:r0]
    exists (x = 1)
    """
    program = parse(text)
    first, second = (thread.instructions for thread in program.threads)
    assert program.threads[0].placement == Placement(0, 3, 2)
    assert program.aliases == {"y": Alias("x", "generic")}
    assert program.threads[0].registers == (("r9", Address("x")),)
    assert program.threads[1].registers == (("r1", -16),)
    assert first[0] == Label("LC07")
    assert isinstance(first[1], Load)
    assert (first[1].order, first[1].scope) == ("acquire", "sys")
    assert isinstance(first[2], Update)
    assert (first[2].order, first[2].scope) == ("relaxed", "gpu")
    assert isinstance(first[3], Update)
    assert (first[3].register, first[3].operation) == (None, "min")
    assert isinstance(first[4], Branch)
    assert (first[4].comparison, first[4].label) == (">=", "LC07")
    assert first[5] == Move("r4", Address("x"))
    assert second[0:2] == (Fence("sc", "gpu"), Fence("sc", "cluster"))
    assert isinstance(second[2], Load)
    assert (second[2].order, second[2].scope) == ("relaxed", "sys")
    assert isinstance(second[3], Barrier)
    assert second[3].quorum == 2
    assert isinstance(second[4], Update)
    assert (second[4].order, second[4].operation, len(second[4].operands)) == ("release", "cas", 2)
    assert second[5] == Barrier((7,), None, waits=False)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("AArch64 test\n{ }\n", 1, "first line"),
        ("PTX test\nP0@cta 0,gpu 0 ;\n", 1, "initial state"),
        ("PTX test\n{ x=0;\n", 2, "brace"),
        ("PTX test\n{ x=0;\n x:y }\n", 3, "initial value"),
        ("PTX test\n{ x=r0; }\n", 2, "initial value"),
        ("PTX test\n{ x=0; }\n P0@cta 0 ;\nexists (x == 0)", 3, "thread"),
        ("PTX test\n{ x=0; }\n P0@cta 0,gpu 0 | P0@cta 0,gpu 0 ;\nexists (x == 0)", 3, "declared twice"),
        ("PTX test\n{ x=0; P4:r0=1; }\n P0@cta 0,gpu 0 ;\nexists (x == 0)", 3, "thread P4"),
        (HEAD + "st.weak x, 1 | ld.weak r0, x | ld.weak r0, x ;\nexists (x == 0)", 4, "3 columns"),
        (HEAD + "\n\nst.weak x | ;\nexists (x == 0)", 6, "st.weak"),
        (HEAD + "st.weak x, 1 | ld.weak r0 x ;\nexists (x == 0)", 4, "ld.weak"),
        (HEAD + "st.weak.gpu x, 1 | ;\nexists (x == 0)", 4, "scope"),
        (HEAD + "st.acquire.gpu x, 1 | ;\nexists (x == 0)", 4, "must be one of"),
        (HEAD + "ld.acquire r0, x | ;\nexists (x == 0)", 4, "must name a scope"),
        (HEAD + "fence.sc | ;\nexists (x == 0)", 4, "must name a scope"),
        (HEAD + "membar | ;\nexists (x == 0)", 4, "membar"),
        (HEAD + "st.weak 4, 1 | ;\nexists (x == 0)", 4, "location"),
        (HEAD + "ld.weak x, x | ;\nexists (x == 0)", 4, "register"),
        (HEAD + "bne r0, 1 | ;\nexists (x == 0)", 4, "bne"),
        (HEAD + "st.weak x, ? | ;\nexists (x == 0)", 4, "operand"),
        (HEAD + "goto LC0 | ;\nexists (x == 0)", 3, "label LC0"),
        (HEAD + "bar.cta.sync | ;\nexists (x == 0)", 4, "barrier"),
        (HEAD + "st.weak x, 1 | ;\n", 4, "condition"),
        (HEAD + "st.weak x, 1 | \nexists (x == 0)", 4, "semicolon"),
        (HEAD + "st.weak x, 1 | ;\nexists (x == )", 5, "condition"),
        (HEAD + "st.weak x, 1 | ;\nexists (x == 1", 5, "condition"),
        (HEAD + "st.weak x, 1 | ;\nexists (x)", 5, "comparison"),
        (HEAD + "st.weak x, 1 | ;\nexists (x == 1) x", 5, "must end here"),
        (HEAD + "st.weak x, 1 | ;\nexists\n(x == 1 $ x == 2)", 6, "condition"),
        (HEAD + "st.weak x, 1 | ;\nexists (z == 1)", 5, "location z"),
        (HEAD + "st.weak x, 1 | ;\nexists (P7:r0 == 1)", 5, "thread P7"),
        (HEAD + "st.weak x, 1 | ;\nfilter (x == 1)", 5, "condition"),
        (HEAD + "st.weak x, 1 | ;\nfinal (x == 1)", 5, "condition final"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int, part: str):
    with pytest.raises(LitmusSyntaxError, match=rf"^case\.litmus:{line}: ") as caught:
        parse(text, "case.litmus")
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("code", "operation"),
    [
        ("ld.relaxed.gpu.v2 r0, x | ;", "ld.relaxed.gpu.v2"),
        ("st.mmio.relaxed.sys x, 1 | ;", "st.mmio.relaxed.sys"),
        ("fence.proxy.async | ;", "fence.proxy.async"),
        ("cp.async.ca x, x | ;", "cp.async.ca"),
        ("atom.relaxed.gpu.inc r0, x, 1 | ;", "atom.relaxed.gpu.inc"),
        ("bar.cta.red 1 | ;", "bar.cta.red"),
        ("multimem.red.add x, 1 | ;", "multimem.red.add"),
    ],
)
def test_instructions_that_no_model_defines_are_unsupported(code: str, operation: str):
    with pytest.raises(UnsupportedOperationError) as caught:
        run(code)
    assert caught.value.operation == operation


@pytest.mark.parametrize(
    ("code", "operation"),
    [
        ("div r0, 1, r1 | ;", "division by zero"),
        ("ld.weak r0, x ; | ld.weak r1, r0 | ;", "access of address 0"),
        ("mul r0, x, 2 | ;", "mul of an address"),
        ("bge x, 1, LC0 | ; LC0: | ;", "order of addresses"),
        ("bar.cta.sync 1, 1, 0 | ;", "barrier with quorum 0"),
        ("bar.cta.sync 1, 1, 1 | ; bar.cta.sync 1, 1, 1 | ;", "barrier with a quorum that a thread reaches twice"),
    ],
)
def test_what_happens_outside_the_model_is_unsupported(code: str, operation: str):
    code = code.replace("; |", ";")
    assert operation in run(code)
    assert run(code).startswith("UNSUPPORTED(")


def test_an_access_of_order_sc_has_no_meaning_in_ptx():
    program = parse(HEAD + "st.weak x, 1 | ld.weak r0, x ;\nexists (P1:r0 == 1)")
    thread = program.threads[1]
    strong = type(thread)(thread.name, (Load("r0", Address("x"), "sc", "sys"),), thread.placement)
    changed = type(program)((program.threads[0], strong), condition=program.condition)
    assert decide(changed, "ptx").verdict == "UNSUPPORTED(access of order sc)"
    assert decide(changed, "rc11").verdict == "PROVED"


COUNT = "PTX count\n{ n=0; }\n P0@cta 0,gpu 0 | P1@cta 0,gpu 0 ;\n"
STEPS = ("LC0:", "atom.relaxed.gpu.add r0, n, 1", "blt r0, 8, LC0")
LOOP = "".join(f" {step} | {step} ;\n" for step in STEPS)


def test_a_loop_with_an_effect_is_bounded_and_says_so():
    program = parse(COUNT + LOOP + "forall (n >= 9)")
    assert decide(program, limits=Limits(iterations=1)).verdict == "BOUNDED(1)"
    with pytest.raises(SimulationError, match="ran over 1 times"):
        outcomes(program, limits=Limits(iterations=1))
    found = decide(parse(COUNT + LOOP + "exists (n == 10)"), "sc", Limits(iterations=9))
    assert found.verdict == "PROVED"


def test_a_bound_does_not_spoil_what_was_seen():
    once = COUNT + "LC0: | ;\n atom.relaxed.gpu.add r0, n, 1 | ;\n bne r0, 1, LC0 | ;\n"
    assert decide(parse(once + "exists (n == 2)"), limits=Limits(iterations=1)).verdict == "PROVED"
    assert decide(parse(once + "~exists (n == 2)"), limits=Limits(iterations=1)).verdict == "FAILED"


def test_a_failed_poll_is_no_execution_of_its_own():
    wait = HEAD + "st.relaxed.gpu x, 1 | LC0: ld.relaxed.gpu r0, x ;\n | bne r0, 1, LC0 ;\nforall (P1:r0 == 1)"
    assert decide(parse(wait), limits=Limits(iterations=0)).verdict == "PROVED"


def test_a_search_that_takes_too_long_is_unknown():
    row = " | ".join(["atom.relaxed.gpu.add r0, x, 1"] * 6) + " ;\n"
    heading = " | ".join(f"P{index}@cta 0,gpu 0" for index in range(6)) + " ;\n"
    program = parse("PTX long\n{ x=0; }\n" + heading + row * 4 + "forall (x == 24)")
    result = decide(program, limits=Limits(seconds=0.0))
    assert result.holds is None
    assert result.verdict == "UNKNOWN(no answer within 0 s)"
    with pytest.raises(SimulationError, match="took over 0 s"):
        outcomes(program, limits=Limits(seconds=0.0))


def test_a_model_that_does_not_exist_is_an_error():
    program = parse(HEAD + "st.weak x, 1 | ;\nexists (x == 1)")
    with pytest.raises(InputError, match="must be one of sc, rc11, ptx"):
        decide(program, "tso")
    with pytest.raises(InputError, match="must be one of sc, rc11, ptx"):
        outcomes(program, "tso")


class TestCommand:
    """``tiebreak litmus``."""

    def test_prints_a_list_of_objects(self, tmp_path: Path):
        odd = tmp_path / "odd.litmus"
        odd.write_text(HEAD + "ld.weak.v4 r0, x | ;\nexists (x == 0)")
        files = [CORPUS / "MP-gpu.litmus", CORPUS / "MP+RMW.litmus", odd]
        result = CliRunner().invoke(app, ["litmus", *map(str, files), "--json"])
        assert result.exit_code == 1
        answers = json.loads(result.stdout)
        assert [answer["file"] for answer in answers] == [str(file) for file in files]
        assert [answer["holds"] for answer in answers] == [True, False, None]
        assert [answer["verdict"] for answer in answers] == ["PROVED", "FAILED", "UNSUPPORTED(ld.weak.v4)"]

    def test_checks_folders_under_the_chosen_model(self):
        result = CliRunner().invoke(app, ["litmus", str(CORPUS), "--model", "sc", "--json"])
        assert result.exit_code == 0
        answers = {Path(answer["file"]).name: answer["holds"] for answer in json.loads(result.stdout)}
        assert set(answers) == set(EXPECTED)
        assert answers["SB-weak.litmus"] is False

    def test_prints_a_table(self):
        result = CliRunner().invoke(app, ["litmus", str(CORPUS / "SB-weak.litmus")])
        assert result.exit_code == 0
        assert "PROVED" in result.stdout

    @pytest.mark.parametrize(
        "arguments",
        [["nowhere.litmus"], [str(CORPUS.parent / "corpus")], [str(CORPUS / "MP-gpu.litmus"), "--model", "x"]],
    )
    def test_misuse_is_an_error(self, arguments: list[str]):
        result = CliRunner().invoke(app, ["litmus", *arguments])
        assert isinstance(result.exception, InputError)
