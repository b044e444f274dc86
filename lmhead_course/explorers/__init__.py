"""Explorers: sliders over a language model's head, one explorer a file."""

from .controls import LinearSlider, LinkedSlider, SamplingControls, StepSlider
from .cost import CostExplorer
from .cost_view import CostParams, CostView, Side
from .draws import DrawsExplorer
from .draws_view import DrawsView
from .generation import GenerationExplorer
from .generation_view import GenerationView
from .lens import LensExplorer
from .lens_view import LensParams, LensView
from .loss import LossExplorer
from .loss_view import LossParams, LossRow, LossView
from .pipeline import PipelineExplorer
from .pipeline_view import PipelineView
from .projection import ProjectionExplorer
from .projection_view import ProjectionRow, ProjectionView
from .prompt_box import PromptBox
from .sampling import SamplingExplorer
from .sampling_view import Draw, SamplingView, TokenRow
from .softmax_bars import SoftmaxBars
from .softmax_explorer import SoftmaxExplorer
from .softmax_view import SoftmaxParams, SoftmaxRow, SoftmaxView
from .token_table import TokenTable
from .token_tree import TokenTree
from .tying import TyingExplorer
from .tying_view import TyingParams, TyingView

__all__ = [
    "CostExplorer",
    "CostParams",
    "CostView",
    "Draw",
    "DrawsExplorer",
    "DrawsView",
    "GenerationExplorer",
    "GenerationView",
    "LensExplorer",
    "LensParams",
    "LensView",
    "LinearSlider",
    "LinkedSlider",
    "LossExplorer",
    "LossParams",
    "LossRow",
    "LossView",
    "PipelineExplorer",
    "PipelineView",
    "ProjectionExplorer",
    "ProjectionRow",
    "ProjectionView",
    "PromptBox",
    "SamplingControls",
    "SamplingExplorer",
    "SamplingView",
    "Side",
    "SoftmaxBars",
    "SoftmaxExplorer",
    "SoftmaxParams",
    "SoftmaxRow",
    "SoftmaxView",
    "StepSlider",
    "TokenRow",
    "TokenTable",
    "TokenTree",
    "TyingExplorer",
    "TyingParams",
    "TyingView",
]
