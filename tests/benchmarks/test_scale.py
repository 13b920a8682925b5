"""The table of large slices names the partitions whose step takes the least time."""

from benchmarks import scale

RESULT = {
    "recipe": "t5_1_1/xl", "slice": "v4-256", "partitions": 1, "batch": 1024, "used_gib": 20.0,
    "compiler": 300.0, "arithmetic": 200.0, "memory": 50.0, "communication": 400.0,
    "bound": "communication", "mfu": 0.5, "compile_seconds": 100,
}  # fmt: skip


def test_the_time_on_the_links_counts():
    two = RESULT | {"partitions": 2, "compiler": 350.0, "communication": 100.0}
    refused = {k: RESULT[k] for k in ("recipe", "slice", "batch")} | {
        "partitions": 4,
        "refused": "too large",
    }
    rows = list(scale.table([two, refused, RESULT]))[2:]
    assert [row.split(" | ")[3] for row in rows] == ["1", "**2**", "4"]
    assert "20.0 of 30.8 | 300 ms | 200 ms | 400 ms | 50% |" in rows[0]
    assert "does not fit" in rows[2]


def test_all_layouts_are_compiled_once():
    layouts = list(scale.layouts())
    assert len(layouts) == len(set(layouts)) == len(scale.SLICES) * (3 + 4)
