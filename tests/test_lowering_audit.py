"""What the installed compilers make of every flag operation, against the manifest, and the simulator's profiles."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from tiebreak.codegen import ARCHITECTURES, specimens
from tiebreak.errors import InputError, MissingBackendError
from tiebreak.impl.kernel_store import find_compiler
from tiebreak.lowering import command, probes
from tiebreak.lowering.kernels import (
    cutedsl_version,
    describe_source,
    lower_cutedsl,
    lower_triton,
    triton_version,
)
from tiebreak.lowering.manifest import (
    COMMAND,
    PATH,
    compare,
    describe_kernels,
    load_manifest,
    render,
    save_manifest,
)
from tiebreak.lowering.profile import derive_profile
from tiebreak.ptx.ranks import make_session
from tiebreak.ptx.triton_compiler import obtain_code
from tiebreak.sim.fabric import simulate
from tiebreak.sim.lowering import LOWERINGS
from tiebreak.sim.machine import Settings
from tiebreak.sim.ptx.flags import find_flag_operations
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.schedulers.registry import make_scheduler

MANIFEST = load_manifest()
TRITON = [name for name in MANIFEST if name.startswith("triton-")]
TARGETS = [f"sm_{architecture}a" for architecture in ARCHITECTURES]
BARRIERS = ("bar.sync", "barrier.cta")


def lower(name: str) -> str:
    """Return the PTX of one kernel of the exchange for H200."""
    specimen = next(specimen for specimen in specimens() if specimen.name == name)
    return obtain_code(describe_source(specimen, 90)).ptx


def describe(name: str, text: str) -> dict[str, list[dict[str, object]]]:
    """Return the entries of a PTX text."""
    module = parse(text, name)
    return describe_kernels((name, module.target, kernel) for kernel in module.kernels.values())


def test_triton_lowers_every_flag_operation_as_the_manifest_says():
    difference = compare(MANIFEST, triton_version(), describe_kernels(lower_triton()))
    assert not difference, f"{difference}\nif this is right, run: {COMMAND}"


def test_cutedsl_lowers_every_flag_operation_as_the_manifest_says():
    if find_compiler() is None:
        with pytest.raises(MissingBackendError, match="nvidia-cutlass-dsl"):
            cutedsl_version()
    else:
        difference = compare(MANIFEST, cutedsl_version(), describe_kernels(lower_cutedsl()))
        assert not difference, f"{difference}\nif this is right, run: {COMMAND}"


@pytest.mark.parametrize("name", LOWERINGS)
def test_profiles_of_the_simulator_follow_from_the_audited_code(name):
    assert derive_profile(name, MANIFEST[name]) == LOWERINGS[name]


@pytest.mark.parametrize("compiler", TRITON)
def test_the_manifest_covers_every_kernel_with_flags_for_every_target(compiler):
    expected = {"wait_writable", "publish", "wait", "complete+acknowledge", "publish_returned", "wait_returned"}
    own = {name: entries for name, entries in MANIFEST[compiler].items() if not name.startswith("probe ")}
    assert expected <= set(own)
    for name in expected:
        assert [target for target in TARGETS if any(target in entry["targets"] for entry in own[name])] == TARGETS


@pytest.mark.parametrize("compiler", MANIFEST)
def test_releases_and_acquires_of_peers_cover_the_cta(compiler):
    """Whatever the compiler adds: no store of the kernel lies between the last barrier and a release of flags alone."""
    entries = [(name, entry) for name, own in MANIFEST[compiler].items() for entry in own if "probe" not in name]
    remote = [(name, entry) for name, entry in entries if entry["order"] in ("release", "acquire")]
    assert {entry["order"] for _, entry in remote} == {"release", "acquire"}
    for name, entry in remote:
        assert entry["scope"] == "sys"
        if entry["order"] == "acquire":
            assert any(text.startswith(BARRIERS) for text in entry["after"])
            assert "the kernel ends" not in entry["after"]
        elif name != "complete+acknowledge":  # Its kernel stores nothing that the flag announces.
            assert any(text.startswith(BARRIERS) for text in entry["before"]) or entry["before"] == [
                "the kernel starts"
            ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (".sys.release.", ".sys.relaxed.", '-order = "release"\n+order = "relaxed"'),
        (".sys.release.", ".gpu.release.", '-scope = "sys"\n+scope = "gpu"'),
        ("bar.sync \t0;", "", '-before = ["bar.sync'),
        ("setp.eq.b32 \t%p2", "setp.ne.b32 \t%p2", '-performed_by = "(tid.x & 31) == 0"'),
        ("@%p2 atom", "atom", '+performed_by = "every thread"'),
    ],
)
def test_another_lowering_is_a_readable_difference(old, new, expected):
    text = lower("publish")
    assert old in text
    manifest = {"triton": describe("publish", text)}
    difference = compare(manifest, "triton", describe("publish", text.replace(old, new)))
    assert expected in difference
    assert compare(manifest, "triton", describe("publish", text)) == ""


def test_a_store_that_overtakes_the_barrier_shows():
    lines = lower("publish").splitlines()
    (release,) = [place for place, line in enumerate(lines) if "atom.global" in line]
    (store,) = [place for place, line in enumerate(lines) if "st.global" in line]
    moved = lines[:store] + lines[store + 1 : release] + [lines[store]] + lines[release:]
    (entry,) = describe("publish", "\n".join(moved))["publish"]
    assert entry["before"][0].startswith("st.global.b64")


def test_a_barrier_on_one_path_only_does_not_count_for_the_other():
    text = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry branch(.param .u64 data)
{
    .reg .pred %p1;
    .reg .b32 %r<2>;
    .reg .b64 %rd1;
    ld.param.b64 %rd1, [data];
    st.global.b32 [%rd1], 1;
    ld.global.b32 %r1, [%rd1+4];
    setp.eq.b32 %p1, %r1, 0;
    @%p1 bra after;
    bar.sync 0;
after:
    st.release.sys.global.b32 [%rd1+8], 1;
    ret;
}
"""
    (kernel,) = parse(text).kernels.values()
    (operation,) = find_flag_operations(kernel)
    assert [barrier.name for barrier in operation.before.barriers] == ["bar.sync"]
    assert [store.name for store in operation.before.accesses] == ["st.global.b32"]
    assert operation.before.open
    assert operation.performed_by == "every thread"


def test_threads_that_a_branch_selects_are_named():
    text = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry elect(.param .u64 data, .param .u32 elect_param_1)
{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    .reg .b64 %rd1;
    ld.param.b64 %rd1, [data];
    ld.param.b32 %r1, [elect_param_1];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra end;
    setp.eq.b32 %p2, %r2, 3;
    @!%p2 bra end;
    red.release.sys.global.add.u32 [%rd1], 1;
end:
    ret;
}
"""
    (kernel,) = parse(text).kernels.values()
    (operation,) = find_flag_operations(kernel)
    assert operation.performed_by == "tid.x == 3 and tid.x < parameter 1"


def test_an_unknown_compiler_is_refused_with_the_command_to_run():
    with pytest.raises(InputError, match="--update"):
        compare(MANIFEST, "triton-1.0", {})


def test_the_manifest_is_what_the_command_writes(tmp_path):
    path = tmp_path / "manifest.toml"
    save_manifest(MANIFEST, path)
    assert path.read_text() == PATH.read_text()
    assert load_manifest(path) == MANIFEST
    assert render("triton-3.9", MANIFEST["triton-3.9"]) in path.read_text()


def test_the_command_says_what_it_audited_and_fails_on_a_difference(monkeypatch, tmp_path):
    """With a manifest of another release of the installed compiler, and after renewing it."""
    path = tmp_path / "manifest.toml"
    stale = {name: entries for name, entries in MANIFEST[triton_version()].items() if name != "publish"}
    found = {triton_version(): MANIFEST[triton_version()]}
    monkeypatch.setattr(command, "_describe_compilers", lambda: found.items())
    monkeypatch.setattr(command, "load_manifest", lambda: load_manifest(path))
    monkeypatch.setattr(command, "save_manifest", lambda manifest: save_manifest(manifest, path))
    save_manifest({triton_version(): stale}, path)
    console = Console(file=io.StringIO(), width=200)
    assert command.audit_lowering(False, console) == 1
    assert command.audit_lowering(True, console) == 0
    assert command.audit_lowering(False, console) == 0
    printed = console.file.getvalue()
    assert '+order = "release"' in printed
    assert f"if this is right, run: {COMMAND}" in printed
    assert "as the manifest says" in printed


PROFILED = {
    "release_to_program": "barrier_before_release",
    "acquire_from_program": "barrier_after_acquire",
    "use_in_threads": "barrier_after_used_result",
}
"""Probes by the barrier that they need."""


def run_probe(name: str, **arguments: object) -> list[str]:
    """Return what is wrong with a probe of one warp per program on one simulated device."""

    def host(fabric):
        data, output = (fabric.upload(torch.zeros(32, dtype=torch.int32), name) for name in ("data", "output"))
        flag = fabric.upload(torch.zeros(1, dtype=torch.int64), "flag")
        programs = 1 if name == "use_in_threads" else 2
        getattr(probes, name)[(programs,)](data, flag, output, block=32, num_warps=1)
        fabric.synchronize()

    scheduler = make_scheduler("default")
    scheduler.begin()
    return [violation.property for violation in simulate([host], scheduler, **arguments).violations]


@pytest.mark.parametrize("name", PROFILED)
@pytest.mark.parametrize("profile", LOWERINGS)
def test_interpreted_probes_race_where_their_profile_has_no_barrier(profile, name):
    found = run_probe(name, settings=Settings(lowering=profile))
    assert found == ([] if getattr(LOWERINGS[profile], PROFILED[name]) else ["race"])


@pytest.mark.parametrize("name", PROFILED)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_compiled_probes_race_where_the_profile_of_their_compiler_says_so(architecture, name):
    found = run_probe(name, session=make_session("tiebreak.impl", f"sm_{architecture}a"))
    assert found == ([] if getattr(LOWERINGS[triton_version()], PROFILED[name]) else ["race"])
