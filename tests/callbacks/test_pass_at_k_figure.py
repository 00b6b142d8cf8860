"""Pass@k curves as figures."""

from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from fake_run import batch, trainer
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from ngrpo.callbacks.evaluation import Evaluation
from ngrpo.callbacks.pass_at_k_figure import PassAtKFigure, pass_at_k_figure, spread
from ngrpo.evaluation.evaluation_result import EvaluationResult

RESULTS = [EvaluationResult(n, {"mean@1": 0.1, "pass@4": 0.5 + n / 10, "pass@1": n / 10}, {"": []}) for n in range(3)]


def test_first_and_newest_are_named():
    figure = pass_at_k_figure(RESULTS)
    lines = figure.axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == [[0.0, 0.5], [0.1, 0.6], [0.2, 0.7]]
    assert list(lines[0].get_xdata()) == [1, 4]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["iteration 0", "iteration 2"]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    assert np.asarray(canvas.buffer_rgba()).std() > 10


def test_a_single_evaluation_is_drawn():
    assert len(pass_at_k_figure(RESULTS[:1]).axes[0].lines) == 1


@pytest.mark.parametrize(
    ("count", "kept"), [(1, [0]), (4, [0, 1, 2, 3]), (5, [0, 1, 3, 4]), (100, [0, 33, 66, 99]), (101, [0, 33, 67, 100])]
)
def test_many_curves_are_thinned_evenly(count: int, kept: list[int]):
    assert spread(range(count), 4) == kept


def test_a_long_run_draws_no_more_curves_than_can_be_told_apart():
    results = [EvaluationResult(n, {"pass@1": n / 300, "pass@2": 1.0}, {"": []}) for n in range(300)]
    axes = pass_at_k_figure(results).axes[0]
    assert len(axes.lines) == 8
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["iteration 0", "iteration 299"]
    assert [axes.lines[at].get_ydata()[0] for at in (0, -1)] == [0.0, 299 / 300]


def test_drawn_once_an_evaluation():
    evaluation = Evaluation(None, SimpleNamespace(eval_prompts=list), None)
    run = trainer(callbacks=[evaluation])
    written = run.loggers[0].media
    callback = PassAtKFigure()
    callback.on_train_batch_end(run, None, None, batch(0), 0)
    assert written == []
    evaluation.results = RESULTS[:2]
    for iteration in range(2):
        callback.on_train_batch_end(run, None, None, batch(iteration), 0)
    evaluation.results = RESULTS
    callback.on_train_end(run, None)
    assert [(tag, step) for tag, _, step in written] == [("eval/pass_at_k", 1), ("eval/pass_at_k", 2)]
    assert np.asarray(Image.open(BytesIO(written[0][1].data))).std() > 10
