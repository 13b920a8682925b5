"""Cycles and bytes are counted as often as their computation runs."""

import pytest

from fakes.refuses import refuses
from preflight.aot.hlo import Program

PROGRAM = """
HloModule jit_f, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%inner (p: (s32[])) -> (s32[]) {
  %dot = f32[8]{0} fusion(%p), calls=%add, backend_config={"estimated_cycles":"5"}
}

%inner_condition (p: (s32[])) -> pred[] {
  %n = s32[]{:T(128)} constant(3)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

%body (p: (s32[])) -> (s32[]) {
  %reduced = (bf16[4,2]{1,0:T(8,128)(2,1)}, f32[2]{0}) all-reduce(%x, %y), to_apply=%add
  %while.1 = (s32[]) while(%p), condition=%inner_condition, body=%inner
  ROOT %copy = f32[8]{0} copy(%p), metadata={op_name="jit(f)/copy"}, backend_config={"estimated_cycles":"100"}
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %gather = (bf16[2]{0}, bf16[8]{0}) all-gather-start(%p), dimensions={0}
  %done = bf16[8]{0} all-gather-done(%gather)
  %while.2 = (s32[]) while(%t), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"10"}}
  ROOT %last = f32[8]{0} fusion(%p), calls=%add, backend_config={"estimated_cycles":"7"}
}
"""  # noqa: E501


def test_loops_multiply_cycles():
    assert Program(PROGRAM).cycles() == 7 + 10 * (100 + 3 * 5)


def test_an_instruction_without_an_estimate_counts_nothing():
    unknown = PROGRAM.replace('"estimated_cycles":"7"', f'"estimated_cycles":"{2**63 - 1}"')
    assert Program(unknown).cycles() == 10 * (100 + 3 * 5)


def test_a_window_of_a_product_may_count_in_unsigned_integers():
    program = PROGRAM.replace("%n = s32[]", "%n = u32[]")
    assert Program(program).cycles() == Program(PROGRAM).cycles()


def test_costs_are_named_and_sorted():
    costliest = Program(PROGRAM).costliest(2)
    assert costliest == [(1000, 10, "%copy", "jit(f)/copy"), (150, 30, "%dot", "")]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("pred", 8), ("u2", 2), ("s4", 4), ("f8e4m3b11fnuz", 8), ("f4e2m1fn", 4), ("f16", 16)]
    + [("c128", 128), ("token", 0)],
)
def test_every_type_of_numbers_has_its_size(dtype, size):
    program = PROGRAM.replace(
        "bf16[8]{0}) all-gather-start", f"{dtype}[800]{{0}}) all-gather-start"
    )
    assert Program(program).collectives()["all-gather"] == max(100 * size, 2 * 2)


def test_collectives_count_results_once():
    wanted = {"all-gather": 8 * 2, "all-reduce": 10 * (4 * 2 * 2 + 2 * 4)}
    assert Program(PROGRAM).collectives() == wanted


@pytest.mark.parametrize(
    ("groups", "devices"),
    [
        ("[2,8]<=[8,2]T(1,0)", 8),
        ("{{0,1,2,3},{4,5,6,7}}", 4),
        ("mesh['axis_0'=8,'axis_1'=2] {'axis_0'}", 8),
        ("mesh['axis_0'=4,'axis_1'=2,'axis_2'=3] {'axis_0','axis_2'}", 12),
    ],
)
def test_a_device_receives_what_the_others_of_its_group_have(groups, devices):
    program = PROGRAM.replace("dimensions={0}", f"replica_groups={groups}, dimensions={{0}}")
    program = program.replace("all-reduce(%x, %y)", f"all-reduce(%x, %y), replica_groups={groups}")
    others = devices - 1
    reduced = 10 * (4 * 2 * 2 + 2 * 4)
    wanted = (8 * 2 + 2 * reduced) * others / devices
    assert Program(program).received() == pytest.approx(wanted)
    scattered = program.replace("all-reduce(", "reduce-scatter(")
    wanted = 8 * 2 * others / devices + reduced * others
    assert Program(scattered).received() == pytest.approx(wanted)


def test_of_branches_the_costliest_counts():
    chosen = "conditional(%p), branch_computations={%add, %inner}"
    program = PROGRAM.replace("all-gather-done(%gather)", chosen)
    assert Program(program).cycles() == 1157 + 5
    rare = 'fusion(%p), metadata={op_name="jit(f)/cond/fallback/exp"}'
    assert Program(program.replace("fusion(%p)", rare, 1)).cycles() == 1157
    assert Program(program.replace("fusion(%p)", rare, 1), fallbacks=True).cycles() == 1162


def test_a_loop_that_usual_data_need_once_counts_once():
    unknown = PROGRAM.replace("constant(3)", "parameter(3)")
    scoped = 'body=%inner, metadata={op_name="jit(f)/jvp(once)/while"}'
    assert Program(unknown.replace("body=%inner", scoped)).cycles() == 7 + 10 * (100 + 5)
    assert Program(PROGRAM.replace("body=%inner", scoped)).cycles() == 1157


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="trip count"):
        Program(PROGRAM.replace("constant(3)", "parameter(3)")).cycles()
    with refuses() as refusal:
        Program(PROGRAM.replace("estimated_cycles", "other")).cycles()
    assert refusal.value.to_set == "compile for a TPU"
