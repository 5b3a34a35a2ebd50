"""What each stage holds: each weight once a stage, copies and buffers told apart."""

from hypothesis import given
from hypothesis import strategies as st

from service.core.models.dtypes import DType
from service.core.models.graph import Buffer, Layer, Model, Parameter, build_model
from service.core.models.weights import StageWeights, stage_weights


def model_of(*layers: Layer) -> Model:
    return build_model(layers, [])


def weight(name: str, count: int, dtype: DType = DType.BF16, group: str | None = None) -> Parameter:
    return Parameter(name, count, dtype, group)


def test_a_weight_counts_once_on_each_stage_that_holds_it() -> None:
    shared = weight("shared", 10, DType.FP32)
    model = model_of(
        Layer("embed", "embedding", (weight("table", 100, group="words"),)),
        Layer("first", "linear", (shared, weight("own", 7))),
        Layer("relu", "activation"),
        Layer("again", "linear", (shared,), (Buffer("mean", 5, DType.FP32),)),
        Layer("head", "linear", (weight("projection", 100, group="words"),)),
    )
    assert stage_weights(model, (0, 0, 0, 1, 1)) == (
        StageWeights(117, 110, 0, 254, 0, 0),
        StageWeights(110, 110, 110, 240, 5, 20),
    )
    # On one stage the module that is used twice counts once, and so does the table.
    (whole,) = stage_weights(model, (0,) * 5)
    assert whole == StageWeights(117, 110, 0, 254, 5, 20)
    assert whole.parameter_count == model.parameter_count


def test_an_uneven_pipeline_is_counted_by_its_layers() -> None:
    """Eight blocks as [1, 2, 2, 3]: 9,952 weights on the heaviest stage; the average says 6,792
    (Megatron-Bridge, pull request 5077). Both follow from a hidden size of 16: 12 h^2 and two norms
    of 2 h in a block, 32 tokens of vocabulary, a norm of 2 h at the end.
    """
    hidden, words = 16, 32
    block, norm, table = 12 * hidden**2 + 2 * 2 * hidden, 2 * hidden, words * hidden
    model = model_of(
        Layer("embedding", "embedding", (weight("table", table, group="words"),)),
        *(Layer(f"block.{i}", "block", (weight(f"w{i}", block),)) for i in range(8)),
        Layer("norm", "norm", (weight("scale", norm),)),
        Layer("head", "head", (weight("head", table, group="words"),)),
    )
    blocks = [stage for stage, count in enumerate([1, 2, 2, 3]) for _ in range(count)]
    held = stage_weights(model, [0, *blocks, 3, 3])
    assert [stage.parameter_count for stage in held] == [3648, 6272, 6272, 9952]
    assert [stage.copied_parameter_count for stage in held] == [0, 0, 0, 512]
    assert (model.parameter_count - table) / 4 + table == 6792


@given(
    groups=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=8),
    cuts=st.sets(st.integers(1, 7)),
)
def test_without_copies_the_stages_sum_to_the_model(
    groups: list[str | None], cuts: set[int]
) -> None:
    size = {None: 3, "a": 5, "b": 11}
    model = model_of(
        *(
            Layer(f"l{i}", "linear", (weight(f"w{i}", size[group], group=group),))
            for i, group in enumerate(groups)
        )
    )
    starts = sorted(cut for cut in cuts if cut < len(groups))
    stage_of_layer = [sum(start <= i for start in starts) for i in range(len(groups))]
    held = stage_weights(model, stage_of_layer)
    own = sum(stage.parameter_count - stage.copied_parameter_count for stage in held)
    assert own == model.parameter_count
